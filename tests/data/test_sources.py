"""Downloads from a server on this machine that behaves in all the ways that servers do."""

import hashlib
import http.server
import socket
import threading

import pytest
from kdist.data.sources import DownloadError, download
from kdist.errors import UserError

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/none":
            self.send_error(404)
        elif self.path == "/garbage":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
        elif self.path != "/silent":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[: -1 if self.path == "/short" else None])

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_file_is_fetched_into_a_new_folder(url, tmp_path, capsys):
    target = tmp_path / "a" / "b" / "file"
    download(f"{url}/file", target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    # A shared cache is readable to those to whom new files are.
    (tmp_path / "other").touch()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert capsys.readouterr().out == ""
    assert socket.getdefaulttimeout() is None


def test_it_appears_only_once_verified(url, tmp_path):
    target = tmp_path / "file"

    def reject(path):
        assert not target.exists()
        assert path.read_bytes() == CONTENT
        raise UserError("another file")

    with pytest.raises(UserError, match="another file"):
        download(f"{url}/file", target, verify=reject)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/none", "404 -- Not Found"),
        ("/short", "retrieval incomplete: got only 255999 out of 256000 bytes"),
        ("/garbage", "this is no HTTP"),
        ("/silent", "closed connection"),
        ("/file", f"does not match the provided value of {'0' * 64}"),
    ],
)
def test_what_goes_wrong_on_the_way_is_a_reason_and_leaves_nothing(url, path, reason, tmp_path):
    with pytest.raises(DownloadError, match=reason):
        download(url + path, tmp_path / "file", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_a_reason(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        with pytest.raises(DownloadError, match="refused"):
            download(f"http://127.0.0.1:{taken.getsockname()[1]}/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_a_reason(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match="timed out"):
            download(address, tmp_path / "file", timeout_s=0.05)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_reason(url, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(DownloadError, match=r"cannot write .*taken: "):
        download(f"{url}/file", tmp_path / "taken" / "file")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(DownloadError, match=r"cannot write .*folder: Is a directory"):
        download(f"{url}/file", tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "taken"]

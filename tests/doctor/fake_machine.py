"""Machines that are not there: their files, and what their commands print."""

from kdist.doctor.machine import Ended, Machine

H100 = "{}, NVIDIA H100 80GB HBM3, {}, 81559, {}, 9.0"


def smi(*, driver="550.54.15", used=(512, 512)):
    return "\n".join(H100.format(index, driver, mib) for index, mib in enumerate(used)) + "\n"


def fake_machine(root, *, files=None, commands=None, environment=None, cores=range(4)):
    """`commands`: exit code and text of a command, by its first words; no other is installed."""
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(arguments):
        line = " ".join(arguments)
        for words, answer in (commands or {}).items():
            if line.startswith(words):
                if isinstance(answer, Exception):
                    raise answer
                return Ended(*answer)
        return None

    return Machine(root=root, environment=environment or {}, cores=frozenset(cores), run=run)

# An image for NVIDIA GPUs, whose libraries come from PyPI; the host has the driver.
#
#     docker build -t kdist .
#     docker run --gpus all kdist doctor
#     docker run --gpus all -v "$PWD:/work" kdist train my_model.py:build
FROM python:3.12-slim
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY callbacks callbacks
COPY models models
COPY kdist kdist
RUN pip install --no-cache-dir '.[cuda]'
WORKDIR /work
ENTRYPOINT ["kdist"]

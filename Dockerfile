# The command line with everything it can do, but Ray. For a processor alone, where GPU builds of torch are not wanted:
#     docker build --build-arg PIP_EXTRA_INDEX_URL=<torch's index of CPU builds> -t mlcpc .
#     docker run --rm -v "$PWD:/here" mlcpc doctor
# With GPUs: docker run --gpus all …
FROM python:3.13-slim
ARG PIP_EXTRA_INDEX_URL=""
WORKDIR /opt/mlcpc
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL" \
    pip install --no-cache-dir -c constraints.txt '.[cli,mi,parquet,train]' scikit-learn
# Data and runs live outside: mount a folder at /here, and a cache at /data if data sets should be kept.
ENV MLCPC_DATA=/data
WORKDIR /here
ENTRYPOINT ["mlcpc"]
CMD ["--help"]

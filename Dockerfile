# The compiler with cross compilers and QEMU:
#
#   docker build -t tvm-ext .
#   docker run --rm -v "$PWD:/work" tvm-ext compile model.onnx -p cortex_m4 -o out/model
FROM python:3.11-slim-bookworm
COPY . /tvm_ext
RUN apt-get update && apt-get install --no-install-recommends -y gcc libc6-dev make \
    && TVM_EXT_REQUIRE_BOARDS=1 /tvm_ext/.ci/boards \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --constraint /tvm_ext/constraints.txt "/tvm_ext[reference]"
WORKDIR /work
ENTRYPOINT ["tvm-ext"]

# The worker and `citer serve`. torch's wheels from the index contain CUDA; the host has the driver.
FROM python:3.11.15-slim-bookworm
# Triton and DeepSpeed need the compiler at their first run, DVC needs git.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential git \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory /citer
# The dependencies have a layer of their own: a change of the code installs nothing again. The
# installation is editable, so the code is that of /citer, also where a checkout is mounted there.
WORKDIR /citer
COPY constraints.txt pyproject.toml ./
COPY docker/constraints-cuda.txt docker/
RUN mkdir citer flows \
    && touch README.md citer/__init__.py flows/__init__.py \
    && pip install --no-cache-dir -c constraints.txt -c docker/constraints-cuda.txt \
        -e '.[pipeline,serve,s3]'
COPY citer citer
COPY flows flows
# Any user may run the image. A new volume takes the mode of the folder that it covers.
ENV HOME=/home/citer USER=citer NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN mkdir --mode 1777 "$HOME"
COPY --chmod=755 docker/with-secrets /usr/local/bin/
USER 1000
ENTRYPOINT ["with-secrets"]

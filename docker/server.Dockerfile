# Prefect's and MLflow's servers, in the versions that the worker has. No torch, no CUDA.
FROM python:3.11.15-slim-bookworm
COPY constraints.txt docker/server.txt /tmp/
RUN pip install --no-cache-dir -c /tmp/constraints.txt -r /tmp/server.txt
# Any user may run the image. A new volume takes the mode of the folder that it covers.
ENV HOME=/home/citer USER=citer PREFECT_UI_STATIC_DIRECTORY=/home/citer/ui
RUN mkdir --mode 1777 "$HOME" /artifacts
COPY --chmod=755 docker/with-secrets /usr/local/bin/
USER 1000
WORKDIR /home/citer
ENTRYPOINT ["with-secrets"]

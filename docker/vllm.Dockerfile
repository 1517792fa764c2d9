# vLLM with the plugin that routes. The tested version is that of the extra `vllm`.
FROM vllm/vllm-openai:v0.32.0
WORKDIR /citer
COPY pyproject.toml ./
RUN mkdir citer flows \
    && touch README.md citer/__init__.py flows/__init__.py \
    && uv pip install --system --no-cache -e '.[vllm]'
COPY citer citer
# Any user may run the image. A new volume takes the mode of the folder that it covers.
ENV HOME=/home/citer USER=citer
RUN mkdir --mode 1777 "$HOME"
COPY --chmod=755 docker/with-secrets /usr/local/bin/
USER 1000
ENTRYPOINT ["with-secrets"]

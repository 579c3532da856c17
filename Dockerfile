# The service as one image: the same for `serve`, `migrate` and `simulate`. The root may be read-only; only /data, /tmp
# and, for a simulated rack, /rack are written to.

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY fabric_manager fabric_manager
COPY migrations migrations
COPY examples examples
# The wheel's own environment has what the service needs and neither pip nor the build backend.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/fabric-manager \
 && /build/bin/pip --python /opt/fabric-manager/bin/python install --no-cache-dir --require-hashes --requirement requirements.txt \
 && /build/bin/pip --python /opt/fabric-manager/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && /build/bin/pip --python /opt/fabric-manager/bin/python uninstall --yes \
      hatchling editables packaging pathspec pluggy tomlkit trove-classifiers

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="fabric-manager" \
      org.opencontainers.image.description="Owns the truth of which host may use which bytes of pooled CXL memory." \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes setuptools wheel pip \
 && groupadd --gid 10001 fabric \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin fabric \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data /rack
COPY --from=build /opt/fabric-manager /opt/fabric-manager
ENV PATH=/opt/fabric-manager/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FABRIC_MANAGER_HOST=0.0.0.0 \
    FABRIC_MANAGER_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
# Alive is enough: a service without its database is to be kept, since it recovers by itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
ENTRYPOINT ["fabric-manager"]
CMD ["serve"]

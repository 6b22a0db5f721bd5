# One image for the four programs: `fairlead driver | webhook | controller | ui`, and the rest of the command line.
#
#   docker build -t fairlead:0.1.0 .
#   docker build -t fairlead:0.1.0 --build-arg TRACES=yes .    # with OpenTelemetry's SDK, for --otlp-endpoint (docs/tracing.md)
#
# The base image is pinned by digest, that of the index of all platforms; `docker buildx imagetools inspect python:3.12-slim-bookworm` shows
# the current one, and taking it is how Debian's fixes come in. Everything that is installed is pinned by hash (lock/image.txt). Nothing of NVIDIA's is in it: the driver finds NVML
# under --driver-root. The webhook, the controller and the pages run as 65532; the driver's DaemonSet asks for root itself.
ARG PYTHON=3.12-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258

FROM docker.io/library/python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/fairlead
WORKDIR /src
COPY lock/image.txt lock/otel.txt lock/
RUN /opt/fairlead/bin/pip install --require-hashes --only-binary=:all: -r lock/image.txt
ARG TRACES=""
RUN if [ -n "$TRACES" ]; then /opt/fairlead/bin/pip install --require-hashes --only-binary=:all: -r lock/otel.txt; fi
# Only what runs in a cluster: no sandbox, hence no `fairlead demo`, and nothing that only tests use.
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY lib lib
COPY engine engine
COPY history history
COPY driver driver
COPY webhook webhook
COPY controller controller
COPY ui ui
COPY cli cli
RUN /opt/fairlead/bin/pip install --no-deps --no-build-isolation .
# Out goes what only installs need. Bytecode is written now, since a read-only root cannot keep any: that of Python's own library, too, which the base image
# leaves out, and without which each start compiles it anew.
RUN /opt/fairlead/bin/pip uninstall --yes pip hatchling editables \
 && find /opt/fairlead -type d -name __pycache__ -prune -exec rm -rf {} + \
 && export PYTHONPYCACHEPREFIX=/opt/fairlead/compiled \
 && /opt/fairlead/bin/python -m compileall -q /opt/fairlead/lib \
 && /opt/fairlead/bin/python -m compileall -q -x '/(site-packages|test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip)/' \
      "$(/opt/fairlead/bin/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

FROM docker.io/library/python:${PYTHON}
LABEL org.opencontainers.image.title="Fairlead" \
      org.opencontainers.image.description="GPUs of a shared Kubernetes cluster, given to whole jobs, fairly" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/fairlead /opt/fairlead
ENV PATH=/opt/fairlead/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/opt/fairlead/compiled
USER 65532:65532
ENTRYPOINT ["fairlead"]
CMD ["--help"]

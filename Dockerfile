# The api and the workers; PostgreSQL is a server of its own (DATABASE_URL), so the embedded one stays out.
#
#   docker build -t opledger .
#   docker run --read-only --tmpfs /tmp -v opledger:/data -p 127.0.0.1:3000:3000 -e DATABASE_URL=… opledger
#   docker run --read-only --tmpfs /tmp -v opledger:/data --no-healthcheck -e DATABASE_URL=… opledger node dist/worker.js
ARG NODE_VERSION=26

FROM node:${NODE_VERSION}-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# with the optional ones: the tools that build bring their programs for this platform that way
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json ./
COPY scripts ./scripts
COPY src ./src
RUN npm run build

FROM node:${NODE_VERSION}-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

FROM node:${NODE_VERSION}-slim
LABEL org.opencontainers.image.title="opledger" \
      org.opencontainers.image.description="Long-running operations with a result ledger" \
      org.opencontainers.image.licenses="MIT"
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 OPLEDGER_DATA_DIR=/data
WORKDIR /app
# All of it belongs to root and is only read: the root file system may be read-only.
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE ./
COPY bin ./bin
COPY drizzle ./drizzle
COPY openapi ./openapi
# For artifacts, unless they are kept in S3; a volume takes its owner from here.
RUN mkdir /data && chown 65532:65532 /data
VOLUME /data
# A number, so that an orchestrator can verify that it is not root.
USER 65532:65532
EXPOSE 3000
# Drains within 20 s: give it 30.
STOPSIGNAL SIGTERM
# For the api; a worker has no port, and ends itself when it gets nowhere, so switch this off where one runs.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/api.js"]

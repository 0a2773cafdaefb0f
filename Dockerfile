# The api and the workers; PostgreSQL is a server of its own (DATABASE_URL), so the embedded one stays out.
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# with the optional ones: the bundler's program is one of them
RUN npm ci --ignore-scripts
COPY scripts/build.mjs ./scripts/
COPY tsconfig.json ./
COPY src ./src
RUN npm run build

FROM node:24-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts

FROM node:24-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json ./
COPY bin ./bin
COPY drizzle ./drizzle
COPY openapi ./openapi
# For artifacts, unless they are kept in S3; a volume takes its owner from here.
RUN mkdir /data && chown 65532:65532 /data
ENV OPLEDGER_DATA_DIR=/data
# A number, so that an orchestrator can verify that it is not root.
USER 65532:65532
EXPOSE 3000
# For the api; a worker has no port, so switch this off where it runs.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "dist/api.js"]

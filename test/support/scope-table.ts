/** The table of docs/security.md: which scope each route asks for, as the OpenAPI document says. */
interface DocumentedRoute {
  summary: string
  security?: { apiKey?: string[] }[]
}

export const scopeTable = (paths: Record<string, Record<string, DocumentedRoute>>): string => {
  const rows = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { summary, security = [] }]) => {
      const scope = security[0]?.apiKey?.[0]
      return `| \`${method.toUpperCase()} ${path}\` | ${scope === undefined ? 'open' : `\`${scope}\``} | ${summary} |`
    }),
  )
  return ['| route | scope | |', '| --- | --- | --- |', ...rows].join('\n')
}

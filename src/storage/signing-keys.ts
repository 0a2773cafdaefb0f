import type { Connection } from './connection.ts'

/** The key of that name: the one that is there or, where there is none, the one that is offered. Every process sees the same. */
export const keepSigningKey = async ({ sql }: Connection, name: string, offered: string): Promise<string> => {
  await sql`insert into signing_keys (name, key) values (${name}, ${offered}) on conflict (name) do nothing`
  const [row] = await sql<{ key: string }>`select key from signing_keys where name = ${name}`
  if (!row) throw new Error(`the signing key ${name} was not kept`)
  return row.key
}

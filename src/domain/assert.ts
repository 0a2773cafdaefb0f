/** A broken invariant is a bug of ours: it stops the work at hand instead of going on with a wrong fact. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError'
}

export function assertThat(holds: boolean, invariant: string): asserts holds {
  if (!holds) throw new InvariantError(`broken invariant: ${invariant}`)
}

/** Ends an exhaustive switch: the compiler refuses a forgotten member, and a value from outside the union stops here. */
export const assertNever = (value: never): never => {
  throw new InvariantError(`not a member of the union: ${JSON.stringify(value)}`)
}

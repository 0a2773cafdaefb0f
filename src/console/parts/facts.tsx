import type { ComponentChildren, JSX } from 'preact'

/** Names and values; what is null is left out. */
export const Facts = ({ facts }: { facts: readonly (readonly [string, ComponentChildren | null])[] }): JSX.Element => (
  <dl class="facts">
    {facts
      .filter(([, value]) => value !== null)
      .map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
  </dl>
)

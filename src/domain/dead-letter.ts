/**
 * Where a dead letter stands. `recovered`: its effect is applied by now, through late evidence, a replay or another
 * operation; that is true of the world, so it outranks what a person closed it as.
 */
export const DEAD_LETTER_STATUSES = ['open', 'discarded', 'resolved', 'recovered'] as const
export type DeadLetterStatus = (typeof DEAD_LETTER_STATUSES)[number]

/** An incident is open while one of its dead letters is: a new one after its resolution opens it again. */
export const INCIDENT_STATUSES = ['open', 'resolved'] as const
export type IncidentStatus = (typeof INCIDENT_STATUSES)[number]

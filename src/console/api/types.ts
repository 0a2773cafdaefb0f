import type { components } from './openapi.d.ts'

/** The resources by the names that PRODUCT's vocabulary gives them, as the OpenAPI document describes them. */
type Schemas = components['schemas']

export type Operation = Schemas['Operation']
export type OperationEvent = Schemas['Event']
export type Item = Schemas['Item']
export type Checkpoint = Schemas['Checkpoint']
export type HistoryEvent = Schemas['HistoryEvent']
export type Preflight = Schemas['ReplayPreflight']
export type Case = Schemas['ReconciliationCase']
export type Incident = Schemas['Incident']
export type ResolvedIncident = Schemas['ResolvedIncident']
export type OperationType = Schemas['OperationType']
export type HealthReport = Schemas['HealthReport']
export type HealthFigure = Schemas['HealthFigure']

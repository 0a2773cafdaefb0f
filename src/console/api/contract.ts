import type { paths } from './openapi.d.ts'

/** What the OpenAPI document says of a path, in the form that the client asks for it. */
type Method<P extends keyof paths, M extends 'get' | 'post'> = paths[P] extends Record<M, infer O> ? O : never

type Json<R> = R extends { content: { 'application/json': infer Body } } ? Body : never

type AnswerOf<O> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 202 ? Json<R[S]> : never }[keyof R]
  : never

type PathOf<O> = O extends { parameters: { path: infer Path extends object } } ? Path : Record<never, never>
type QueryOf<O> = O extends { parameters: { query?: infer Query } } ? Partial<NonNullable<Query>> : Record<never, never>
type BodyOf<O> = O extends { requestBody?: infer R } ? Json<NonNullable<R>> : never

type PathsWith<M extends 'get' | 'post'> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never
}[keyof paths]

export type GetPath = PathsWith<'get'>
export type PostPath = PathsWith<'post'>
export type GetAnswer<P extends GetPath> = AnswerOf<Method<P, 'get'>>
export type PostAnswer<P extends PostPath> = AnswerOf<Method<P, 'post'>>

export type Query<P extends GetPath> = { [Name in keyof QueryOf<Method<P, 'get'>>]?: string | number | undefined } & {
  [label: `label.${string}`]: string | undefined
}
export interface GetOptions<P extends GetPath> {
  path?: PathOf<Method<P, 'get'>>
  query?: Query<P>
  signal?: AbortSignal
}
export interface PostOptions<P extends PostPath> {
  path?: PathOf<Method<P, 'post'>>
  body?: BodyOf<Method<P, 'post'>>
}

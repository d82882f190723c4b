package ramen

import "strings"

// Parts of Recipes that more than one shape has.
const (
	workflows = `
workflows:
  - name: backup
    sequence: [{group: all}]
  - name: restore
    sequence: [{group: all}]
`
	oneGroup = `
appType: shop
groups:
  - {name: all, type: resource, includedNamespaces: [<app>]}
`
)

// The specs of Recipes as users write them. <app> stands for the application's namespace.
const (
	simple = oneGroup + workflows

	everything = `
appType: shop
volumes: {name: data, type: volume, includedNamespaces: [<app>], labelSelector: {matchLabels: {tier: data}}}
groups:
  - {name: config, type: resource, includedNamespaces: [<app>], includedResourceTypes: [configmap, secret]}
  - {name: workloads, type: resource, backupRef: config, includedNamespaces: [<app>], includedResourceTypes: [deployment, statefulset]}
  - {name: rest, type: resource, includedNamespaces: [<app>], excludedResourceTypes: [deployment, statefulset], essential: false}
hooks:
  - name: db
    namespace: <app>
    type: exec
    labelSelector: {matchLabels: {app: db}}
    timeout: 60
    ops:
      - {name: freeze, container: db, command: '["/bin/sh", "-c", "db freeze"]', inverseOp: thaw}
      - {name: thaw, container: db, command: '["/bin/sh", "-c", "db thaw"]', timeout: 30}
  - name: web
    namespace: <app>
    type: scale
    selectResource: deployment
    nameSelector: web
  - name: ready
    namespace: <app>
    type: check
    selectResource: deployment
    nameSelector: web-.*
    timeout: 900
    chks: [{name: replicas, condition: "{$.spec.replicas} == {$.status.readyReplicas}"}]
workflows:
  - name: backup
    sequence: [{hook: ready/replicas}, {hook: db/freeze}, {group: config}, {group: rest}, {hook: db/thaw}]
  - name: restore
    failOn: essential-error
    sequence: [{group: config}, {group: workloads}, {hook: ready/replicas}]
`

	parameterised = `
appType: ""
volumes: {name: data, type: volume, includedNamespaces: ["$namespaces"]}
groups:
  - {name: front, type: resource, includedNamespaces: ["$namespaces"]}
  - {name: back, type: resource, includedNamespaces: ["${database_namespace}"]}
hooks:
  - name: db
    namespace: $database_namespace
    type: exec
    nameSelector: db-0
    ops: [{name: freeze, command: "/bin/db freeze $database_user"}]
workflows:
  - name: backup
    sequence: [{hook: db/freeze}, {group: front}, {group: back}]
  - name: restore
    sequence: [{group: back}, {group: front}]
`

	emptyGroupName = `
appType: ""
groups: [{name: "", type: resource, includedNamespaces: [<app>]}]
workflows:
  - name: backup
    sequence: [{group: ""}]
  - name: restore
    sequence: [{group: ""}]
`

	withJobs = oneGroup + `
hooks:
  - name: migrate
    namespace: <app>
    type: job
    skipHookIfNotPresent: true
    jobs: [{name: schema, timeout: 600}]
jobs:
  - schema: |
      apiVersion: batch/v1
      kind: Job
      metadata: {name: schema}
` + workflows

	withCommandList = oneGroup + `
hooks:
  - {name: db, namespace: <app>, type: exec, ops: [{name: freeze, command: [/bin/db, freeze]}]}
` + workflows

	of2023 = `
appType: shop
groups: [{name: all, type: resource}]
hooks:
  - name: db
    type: exec
    timeout: 30s
    ops: [{name: freeze, command: [/bin/db, freeze], timeout: 10s}]
captureWorkflow: {sequence: [{hook: db/freeze}, {group: all}]}
recoverWorkflow: {sequence: [{group: all}]}
`
)

// Simple is the spec of a Recipe with one group and both workflows, for the application in a namespace.
func Simple(app string) string { return in(app, simple) }

// Everything is the spec of a Recipe with volumes, three groups, hooks of three types and both workflows.
func Everything(app string) string { return in(app, everything) }

// Parameterised is the spec of a Recipe with parameters: namespaces (a list), database_namespace and database_user.
func Parameterised() string { return parameterised }

// EmptyGroupName is the spec of a Recipe whose only group has no name, which Ramen allows.
func EmptyGroupName(app string) string { return in(app, emptyGroupName) }

// WithJobs is the spec of a Recipe with a job hook, which the CRD of 2024 does not know.
func WithJobs(app string) string { return in(app, withJobs) }

// WithCommandList is the spec of a Recipe all of whose fields the CRDs of today know, but with a command that is a list, as in
// 2023.
func WithCommandList(app string) string { return in(app, withCommandList) }

// Of2023 is the spec of a Recipe as it was written in early 2023: commands are lists, timeouts durations, and the workflows
// have fields of their own.
func Of2023() string { return of2023 }

func in(app, spec string) string { return strings.ReplaceAll(spec, "<app>", app) }

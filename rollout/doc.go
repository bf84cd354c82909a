// Package rollout moves pods along the stages: it reads what is desired from a
// feature flag and takes the agreed stage there, one legal step at a time.
//
// # Usage
//
// Three parts, wired in a line:
//
//	provider, err := rollout.NewFileProvider(rollout.FileConfig{Path: "stages.json"}) // or any OpenFeature provider
//	flags, err := rollout.OpenFlags(ctx, rollout.FlagsConfig{Provider: provider, Pods: names})
//	driver, err := rollout.NewDriver(rollout.DriverConfig{Pods: pods, Desired: flags.Desired, By: instance})
//	go flags.Run(ctx)
//	go driver.Run(ctx)
//
// The flag is the string flag "holdover-stage", evaluated per pod with the
// pod's name as targeting key and as attribute "pod". The file is in flagd's
// schema; of targeting it may use if, == and in on the pod's name, and
// everything else is refused when it is loaded, with its place.
//
// # Guarantees
//
// No default ever decides: a flag that can't be read, or has a value that is no
// stage, leaves a pod where it is. A file is taken over whole or not at all,
// and the last good one is kept. The driver passes no stage over, stays at
// least DriverConfig.Dwell in each, asks readiness before each step, leaves a
// latched pod alone, and neither enters nor leaves mysql-only by the flag.
//
// # Concurrency
//
// Everything is safe for concurrent use. Reading a desired stage or a status
// costs an atomic load. Several instances may run a driver for one pod: the
// stores decide who was first, and the others see it in the next round.
//
// # Failure
//
// What a pod waits for is in its [PodStatus] with what to do about it, and is
// logged once per change. A panic in a provider counts as a failed evaluation.
//
// # Testing
//
// [ParseFlags] checks a file without a provider. [Driver.Round] is one round.
package rollout

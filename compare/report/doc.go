// Package report makes of rollups the page that somebody signs: a verdict with
// every gate's value, limit and reason, and everything that it rests on.
//
// # Usage
//
//	r, err := report.Build(report.Input{Pods: pods, Since: since, Until: until, Rollups: rollups, Fences: fences, Verified: verified})
//	err = r.WriteHTML(file) // WriteText, WriteMarkdown, WriteJSON
//	changes, err := report.Diff(before, r)
//
// # The JSON
//
// WriteJSON writes one object. Keys stay what they are within a schema; others
// may be added. Lists are never null, times are RFC 3339 in UTC, names of
// stages, operations, outcomes, kinds and directions are those of the package
// holdover and of compare. A "rate" object has rate, low and high, a "times"
// object min_us, p50_us, p90_us, p99_us, p999_us (each with value, low, high;
// low and high are null where there are too few values), max_us and sketch.
//
//	schema         1
//	verdict        pass, fail or no-verdict
//	gates          [name, ok, verdict, waived, value, threshold, unit, n, reason]
//	pods           names; unknown_pods those of which nothing is in the data
//	source         where the data was read: mysql, files (event files), or calibration (two equal stores); left out where it is not known
//	from, to       the period that was asked for
//	data           from, to, s, share: what of the period any instance counted
//	stages         that were observed
//	instances      [pod, instance, run, version, config, started, from, to, state, rollups, lost, gap_s, missing_s]
//	versions       of the builds; configs the hashes of their configurations
//	timeline       [pod, at, epoch, stage, latched, by, reason, before]
//	incidents      [pod, what, from, to, open, by, text], in the order of time; what: kill, drill, verification (with differences),
//	               mysql-away, redis-away, process-killed, process-open (in files: running or killed), clock-wrong, repair, rebuild
//	divergences    eligible, compared, differed, unexplained, unexplained_rate (rate),
//	               kinds [kind, count, units, rate, budget, directions [direction, count, units], samples],
//	               strata [name, eligible, compared, differed, unexplained, unexplained_rate, demanded]
//	coverage       eligible, compared, bypassed, share, operations [stage, op, eligible, compared, differed, share],
//	               outcomes [op, redis, mysql, count], pods [pod, eligible, compared, bypassed, share],
//	               hours [hour, op, eligible, compared, share], never_seen
//	latency        operations [stage, op, probe, pairs, redis, mysql, delta (times)], connections [store, tag, holds, held (times)],
//	               baseline, shifts [stage, op, probe, quantile, tail, before_us, after_us, allowed_us]
//	verification   [pod, at, epoch, redis_id, clean, differences, unsettled, summary, by, runs, clean_runs, age_s]
//	selftest       planted, caught, missed, misclassified, unjudged, by_kind [kind, planted, caught, unjudged, seen_as]
//	noise          with a calibration: digest, pods, from, to, compared, differed, rate (rate), operations as in latency
//	not_exercised  sentences
//	sign_offs      [pod, stage, epoch, digest, verdict, decision, as, note, from, to, at, same_data]
//	notes          sentences
//	limits         what was demanded: the fields of Limits
//	digest         SHA-256 of the data
//
// A sample is the [compare.Event] as it was written.
//
// # Guarantees
//
// The same input gives the same bytes: nothing is read from a clock, and lists
// have an order. The digest is of the data (rollups, changes of stage,
// verifications, incidents, limits), not of the page; sign-offs, notes, who is live now, and the
// baseline and the noise that it is compared with, which have digests of their own, are no part of it. It is of one source: event files lack what only MySQL keeps, so
// the same time read from them has another digest, which the page says, and Diff refuses
// the two. Counts are the sums of the rollups, each counted
// once, and a rollup whose own figures disagree is refused.
//
// A gate passes, fails, or can't be judged. One that fails makes the verdict
// fail; without one, a gate that can't be judged makes it no-verdict: too few
// observations, too little coverage, an instance that is missing, a
// stretch that no instance counted or in which too little was compared, nothing
// compared in the stage that a pod is in, nothing planted, no verification are never a
// pass. One unexplained divergence that oversells fails, whatever number is allowed.
//
// Instances are told apart by their runs, never by their names. Each run has to have
// reported to its end or to that of the period, or to be known as killed, and who
// lives has to report; where nobody can be asked who lives, or a clock is ahead, the
// gate has no verdict. A clock that was ahead, or was set back, and is right again is an
// incident and takes the verdict of that gate as long as its counts are in the period:
// they are whole, and their times are not. It is known of counts that were kept before
// they ended, by the clock of MySQL, and of those without a length. Of a period that has
// ended, who lived in it is told by who was heard of in it, and within an hour before
// and after it, and by who lives now; the page says that others are not known. The newest verification of a pod has to be clean, and younger
// than the last lost mirror, outage, rebuild and repair.
//
// A waiver excuses what can't be judged, never a failure. It is told with the verdict
// (Report.Tally): each gate that it covers is named, and those that passed, were waived and
// neither are all. Where everything is waived there is no verdict.
//
// Latency is a gate only against a baseline; a pass without one says so beside the
// verdict. Then the paired deltas are
// compared, at four quantiles and on a grid over the tail, and may have grown by
// a share of MySQL's own time in the baseline. A baseline of other pods, or without
// times of what there are times of now, judges nothing.
//
// An outage of a store is named when it left a twentieth of a rollup's operations
// without an answer, or as many as come in 30 s: counts of an hour hide no minutes. It
// reaches from the begin to the end of the rollups that counted it; the text says how
// long so many operations take, and between which seconds samples of it are.
// What is rarer is in the answers and in the coverage. A self-test's
// plant that no store answered, or whose call was not observed in time, says nothing of
// the comparator: it is unjudged, and when most are, the gate has no verdict.
//
// A rehearsal of the kill switch is a drill, not a kill. Of event files nobody can tell whether
// a process that has not closed its counts was killed: it is process-open there.
//
// Several bounds are shown; each holds by itself.
//
// # Concurrency
//
// Everything is a function of its arguments and keeps nothing. Build's memory
// is that of its input and of one sum.
//
// # Failure
//
// Missing data is in the report. Data that contradicts itself, sketches of two
// accuracies, and limits that make no sense are errors that name the rollup or field.
// What comes from outside (tokens, reasons, notes, names) is escaped in each format.
//
// # Testing
//
// Golden files for each format in testdata, written anew with -update. The HTML
// is opened in a headless Chromium where one is on PATH or named by the variable HOLDOVER_CHROMIUM.
package report

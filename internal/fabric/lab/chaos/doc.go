// Package chaos holds the test that a lab leaves nothing behind and changes nothing
// on its host, whatever happens to it and whenever.
//
// A trial (trial_test.go) starts the real program, has one of its commands under way
// (moments_test.go), does it some harm at a random instant of that (faults_test.go),
// and then looks:
//
//   - two seconds later there is no process of the lab or of what ran in it, no
//     namespace, no socket and no cgroup with a process (remains_test.go); what is
//     there are names, which the next command removes; a recorder may take a little longer
//     to complete the files of captures;
//   - the host is as it was before: interfaces, addresses, routes, rules, mounts,
//     settings below /proc/sys/net, /etc/hosts, System V IPC (host_test.go);
//   - the same lab comes up again at once, and goes down.
//
// Moments and faults are tables: a new verb is one more row of moments, a new
// misfortune one of faults. Everything random comes from a seed and the trial's number, so
// that a trial can be repeated alone, as far as the machine's timing allows:
//
//	make test-chaos TRIALS=400 SEED=1
//	make test-chaos SEED=1 TRIAL=37
//	make test-chaos TRIALS=200 ONLY=kill     faults whose name has that in it
//	make test-chaos TRIALS=200 DURING=run    at moments whose name has that in it
//
// Root runs every other trial as an ordinary user. The tests only ever signal processes that
// carry the trial's mark in their environment, through pidfds.
package chaos

// Package repolint keeps the repository's own rules, the ones that no compiler
// and no linter keeps: names, comments, who may import whom, one version of
// everything, and pages that say what is true.
//
// A rule is a function from a tree of files to what is wrong in it. Each rule
// has a small tree in testdata that breaks it, and fails when it finds nothing
// to judge: a rule whose subject has moved must not pass for ever.
package repolint

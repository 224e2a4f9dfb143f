// Package suites pins the Go clients whose own tests are run.
package suites

import _ "github.com/twmb/franz-go/pkg/kgo"

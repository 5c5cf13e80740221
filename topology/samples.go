package topology

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// This file is files of samples of jitter: a duration on each line, and comments
// from # on.

const (
	maxSampleSize  = 1 << 20 // bytes of one file
	maxSampleFiles = 64      // that one topology reads
	maxBadSamples  = 5       // lines of one file that are told each by itself
)

// A ReadFile reads a file that a topology refers to; a relative path is from
// where the program runs. It need not return more than MaxSize+1 bytes.
type ReadFile func(path string) ([]byte, error)

// sampleFile is the samples in a file that n names, nil if errors were reported.
func sampleFile(r *reader, n *yaml.Node) []time.Duration {
	name := anyText.of(r, n)
	if !name.ok {
		return nil
	}
	path := r.path(name.is)
	if samples, ok := r.samples[path]; ok {
		return samples
	}
	if len(r.samples) == maxSampleFiles {
		r.valueError(n, "one more than %d files of samples, expected no more", maxSampleFiles)
		return nil
	}
	if r.samples == nil {
		r.samples = make(map[string][]time.Duration)
	}
	r.samples[path] = nil // what is wrong with the file is reported once
	data, ok := r.content(n, path, maxSampleSize, "samples: and a list", "no samples: %v")
	if !ok {
		return nil
	}
	in := &reader{file: path}
	samples := sampleLines(in, string(data))
	if in.errors != nil {
		r.errors = append(r.errors, in.errors...)
		return nil
	}
	hasSamples(r, n, samples)
	r.samples[path] = samples
	return samples
}

// sampleLines is the samples in a file's text.
func sampleLines(r *reader, text string) []time.Duration {
	var samples []time.Duration
	number, others := 0, 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		value := strings.TrimSpace(line)
		if value == "" {
			continue
		}
		s, err := sample(value)
		switch {
		case err != nil && len(r.errors) > maxBadSamples:
			others++
			continue
		case err != nil:
			r.errorAt(number, 1+utf8.RuneCountInString(line[:strings.Index(line, value)]), "%v", err)
			continue
		}
		samples = append(samples, s)
	}
	if others > 0 {
		last := &r.errors[maxBadSamples]
		found, _, _ := strings.Cut(last.Message, ", expected ")
		last.Message = fmt.Sprintf("%s, and no durations in %d other lines, expected one on each line", found, others)
	}
	return samples
}

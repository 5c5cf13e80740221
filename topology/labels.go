package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// This file is the labels of a lab: words about it, by which commands select labs.

const (
	maxLabelName  = 63  // characters
	maxLabelValue = 255 // bytes
)

// labelName is the form of a label's name.
var labelName = &pattern{text: `^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`}

// labelsForm is a map of labels. The schema of a value admits what labelValue takes.
var labelsForm = form[map[string]string]{read: labels, schema: func() schema {
	value := schema{"type": "string", "pattern": `^[^\x00-\x1f\x7f-\x9f]*$`, "maxLength": maxLabelValue}
	return mapSchema(schema{"pattern": labelName.compiled().String(), "maxLength": maxLabelName}, anyOf(schema{"type": []string{"number", "boolean"}}, value))
}}

func labels(r *reader, n *yaml.Node) map[string]string {
	labels := map[string]string{}
	for _, e := range r.entries(n) {
		if err := checkLabelName(e.key.Value); err != nil {
			r.valueError(e.key, "%v", err)
			continue
		}
		labels[e.key.Value] = scalar(r, e.value, labelValue).is
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func checkLabelName(name string) error {
	if len(name) > maxLabelName || !labelName.compiled().MatchString(name) {
		return fmt.Errorf("%s is no name of a label, expected up to %d letters, digits and, inside, . _ - and /", quote(name), maxLabelName)
	}
	return nil
}

// labelValue reads the value of a label.
func labelValue(text string) (string, error) {
	if len(text) > maxLabelValue || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fmt.Errorf("%s is no value of a label, expected one line of up to %d bytes", quote(text), maxLabelValue)
	}
	return text, nil
}

// ParseLabel reads a label in the form NAME=VALUE.
func ParseLabel(text string) (name, value string, err error) {
	name, value, given := strings.Cut(text, "=")
	if !given {
		return "", "", fmt.Errorf("found %s, expected NAME=VALUE", quote(text))
	}
	if err := checkLabelName(name); err != nil {
		return "", "", err
	}
	value, err = labelValue(value)
	return name, value, err
}

// A Selector selects labs by their labels: those that have all of its labels, with
// the values that it gives. The zero value selects all.
type Selector struct {
	labels map[string]string
	named  []string // labels of any value
}

// ParseSelector reads labels in the form NAME=VALUE, or NAME for any value.
func ParseSelector(texts []string) (s Selector, err error) {
	s.labels = map[string]string{}
	for _, text := range texts {
		if !strings.Contains(text, "=") {
			if err := checkLabelName(text); err != nil {
				return s, err
			}
			s.named = append(s.named, text)
			continue
		}
		name, value, err := ParseLabel(text)
		if err != nil {
			return s, err
		}
		if before, twice := s.labels[name]; twice && before != value {
			return s, fmt.Errorf("label %s is to be %s and %s, and no lab has both", name, quote(before), quote(value))
		}
		s.labels[name] = value
	}
	return s, nil
}

// Selects reports whether a lab with those labels is selected.
func (s Selector) Selects(labels map[string]string) bool {
	for name, value := range s.labels {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return !slices.ContainsFunc(s.named, func(name string) bool { _, ok := labels[name]; return !ok })
}

// AddLabels gives the lab labels, some of which it may have with other values.
func (t *Topology) AddLabels(labels map[string]string) { t.Labels = merge(labels, t.Labels) }

// KeepLabels gives the lab labels that it does not have.
func (t *Topology) KeepLabels(labels map[string]string) { t.Labels = merge(t.Labels, labels) }

// FormatLabels writes labels, by their names.
func FormatLabels(labels map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, name+"="+labels[name])
	}
	return strings.Join(texts, ", ")
}

package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"skein/cmd/skein/internal/render"
)

// maxDepth bounds how deep files run other files.
const maxDepth = 16

// command is a backslash command.
type command struct {
	name, argument, help string
	run                  func(s *Shell, ctx context.Context, argument string) error
}

// commands returns all backslash commands, in the order that help shows them.
func commands() []command {
	return []command{
		{"d", "[TABLE]", "list tables, or describe one", (*Shell).describe},
		{"dt", "[PATTERN]", "list tables with their size; * and ? stand for any characters", (*Shell).listTables},
		{"dn", "[PATTERN]", "list schemas", (*Shell).listSchemas},
		{"df", "[PATTERN]", "list functions", (*Shell).listFunctions},
		{"du", "[PATTERN]", "list users", (*Shell).listUsers},
		{"l", "", "list databases", (*Shell).listDatabases},
		{"timing", "[on|off]", "show how long statements take", func(s *Shell, _ context.Context, a string) error { return s.toggle(&s.timing, "timing", a) }},
		{"x", "[on|off]", "show a line per value instead of tables", func(s *Shell, _ context.Context, a string) error { return s.toggle(&s.expanded, "expanded", a) }},
		{"format", "[FORMAT]", "print results as " + strings.Join(render.Formats(), ", "), (*Shell).setFormat},
		{"pager", "[on|off]", "show long results with $SKEIN_PAGER or $PAGER", (*Shell).setPager},
		{"o", "[FILE]", "send results to a file, without one back here", func(s *Shell, _ context.Context, a string) error { return s.redirect(a) }},
		{"i", "FILE", "run the statements of a file", (*Shell).include},
		{"?", "", "show this help", (*Shell).help},
		{"q", "", "leave; so does Ctrl-D", func(*Shell, context.Context, string) error { return errQuit }},
	}
}

// command runs a line that begins with a backslash.
func (s *Shell) command(ctx context.Context, line string) error {
	name, argument, _ := strings.Cut(strings.TrimPrefix(line, `\`), " ")
	name = strings.TrimSuffix(name, ";")
	argument = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(argument), ";"))
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		if argument == "" && c.argument != "" && c.argument[0] != '[' {
			return fmt.Errorf(`\%s needs an argument: \%s %s`, name, name, c.argument)
		}
		if argument != "" && c.argument == "" {
			return fmt.Errorf(`\%s takes no argument`, name)
		}
		if err := c.run(s, ctx, argument); err != nil {
			// Errors of a described statement say where in a text nobody typed.
			var inner *StatementError
			if name != "i" && errors.As(err, &inner) {
				err = inner.Err
			}
			return err
		}
		return nil
	}
	return fmt.Errorf(`there is no command \%s; \? lists them`, name)
}

// toggle sets what a command switches; without an argument it turns it over.
func (s *Shell) toggle(value *bool, name, argument string) error {
	switch strings.ToLower(argument) {
	case "":
		*value = !*value
	case "on", "true", "1":
		*value = true
	case "off", "false", "0":
		*value = false
	default:
		return fmt.Errorf("%s is on or off, not %q", name, argument)
	}
	word := "off"
	if *value {
		word = "on"
	}
	return s.say("%s is %s", name, word)
}

func (s *Shell) setFormat(_ context.Context, argument string) error {
	if argument != "" {
		f, err := render.ParseFormat(argument)
		if err != nil {
			return err
		}
		s.format = f
	}
	return s.say("format is %s", s.format)
}

func (s *Shell) setPager(_ context.Context, argument string) error {
	if s.pager == "" {
		return errors.New("there is no pager: SKEIN_PAGER and PAGER are empty, or less is not installed")
	}
	return s.toggle(&s.paging, "pager", argument)
}

func (s *Shell) include(ctx context.Context, path string) error {
	if s.depth == maxDepth {
		return fmt.Errorf("%s: files run each other more than %d deep", path, maxDepth)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.depth++
	defer func() { s.depth-- }()
	if err := s.script(ctx, string(text)); err != nil && !errors.Is(err, errQuit) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (s *Shell) help(context.Context, string) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	for _, c := range commands() {
		t.AppendRow(table.Row{`\` + c.name + " " + c.argument, c.help})
	}
	return s.say("Statements end with a semicolon and may have several lines; Tab completes, Ctrl-R searches the history,\nCtrl-C cancels.\n\n%s", t.Render())
}

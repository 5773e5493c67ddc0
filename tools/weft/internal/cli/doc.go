package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// reference is what `weft doc` writes, field by field as Linkerd's.
type reference struct {
	CLIReference         []commandDoc
	AnnotationsReference []annotationDoc
}

type commandDoc struct {
	Name             string
	Synopsis         string
	Description      string
	Options          []optionDoc
	InheritedOptions []optionDoc
	Example          string
	SeeAlso          []string
}

type optionDoc struct {
	Name         string
	Shorthand    string
	DefaultValue string
	Usage        string
}

type annotationDoc struct {
	Name        string
	Description string
}

// docCommand returns `weft doc`, of which help says nothing: it is for those who
// make pages of it.
func docCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "doc",
		Short:  "Write a reference of the commands and of the annotations, in YAML",
		Hidden: true,
		Args:   usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := yaml.Marshal(reference{CLIReference: commandDocs(cmd.Root()), AnnotationsReference: annotations})
			if err != nil {
				return fmt.Errorf("writing the reference: %w", err)
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return fmt.Errorf("writing the reference: %w", err)
			}
			return nil
		},
	}
}

// commandDocs describes the commands below root that help lists, one of each
// tree after the other.
func commandDocs(root *cobra.Command) []commandDoc {
	var all []commandDoc
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			continue
		}
		all = append(all, commandOf(cmd))
		all = append(all, commandDocs(cmd)...)
	}
	return all
}

func commandOf(cmd *cobra.Command) commandDoc {
	d := commandDoc{
		Name: cmd.CommandPath(), Synopsis: cmd.Short, Description: cmp.Or(cmd.Long, cmd.Short), Example: cmd.Example,
		Options: optionsOf(cmd.NonInheritedFlags()), InheritedOptions: optionsOf(cmd.InheritedFlags()),
	}
	if cmd.HasParent() {
		d.SeeAlso = append(d.SeeAlso, cmd.Parent().CommandPath())
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			d.SeeAlso = append(d.SeeAlso, sub.CommandPath())
		}
	}
	slices.Sort(d.SeeAlso)
	return d
}

func optionsOf(flags *pflag.FlagSet) []optionDoc {
	var all []optionDoc
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || f.Name == "help" {
			return
		}
		all = append(all, optionDoc{Name: f.Name, Shorthand: f.Shorthand, DefaultValue: f.DefValue, Usage: f.Usage})
	})
	return all
}

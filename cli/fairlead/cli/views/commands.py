"""`queues`, `gangs`, `explain`; also as `kubectl fairlead …`. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.options import Namespace, Shown


@dataclass(frozen=True, kw_only=True)
class Queues(Shown):
    """Show the tree of queues: what each uses, its fair share, what it deserves, and how many gangs wait in it."""

    def run(self) -> int:
        from fairlead.cli.views.queues import show

        return show(kubeconfig=self.kubeconfig, context=self.context, output=self.output)


@dataclass(frozen=True, kw_only=True)
class Gangs(Shown):
    """List gangs: phase, queue, place in line, pods, nodes, and why they wait."""

    namespace: Namespace = None
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False

    def run(self) -> int:
        from fairlead.cli.views.gangs import show
        from fairlead.cli.views.reading import own_namespace

        chosen = None if self.everywhere else self.namespace or own_namespace(self.kubeconfig, self.context)
        return show(namespace=chosen, kubeconfig=self.kubeconfig, context=self.context, output=self.output)


@dataclass(frozen=True, kw_only=True)
class Explain(Shown):
    """Explain the state of a pod, a gang or a queue: what blocks it, what holds its devices, what would change it."""

    target: Annotated[str, typer.Argument(help="pod/NAME, gang/NAME, queue/NAME; or a NAME, looked for as each.")]
    namespace: Namespace = None

    def run(self) -> int:
        from fairlead.cli.views.explain import show
        from fairlead.cli.views.reading import own_namespace

        chosen = self.namespace or own_namespace(self.kubeconfig, self.context)
        return show(self.target, namespace=chosen, kubeconfig=self.kubeconfig, context=self.context, output=self.output)

"""No module imports itself by way of others, not even for its types."""

import grimp


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Sets of two or more modules that reach each other: Tarjan's strongly connected components."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        open_modules.append(module)
        for imported in sorted(imports[module]):
            if imported not in numbers:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in open_modules:
                lowest[module] = min(lowest[module], numbers[imported])
        if lowest[module] == numbers[module]:
            place = open_modules.index(module)
            together = set(open_modules[place:])
            del open_modules[place:]
            if len(together) > 1:
                found.append(together)

    for module in sorted(imports):
        if module not in numbers:
            visit(module)
    return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def test_there_are_no_circles_of_imports() -> None:
    graph = grimp.build_graph("maxq", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) & graph.modules for module in graph.modules}
    assert len(imports) > 500
    assert circles(imports) == []

"""No module leads back to itself, not by imports inside of functions either; imports for types alone are no imports."""

import grimp


def test_no_module_imports_itself_over_others():
    graph = grimp.build_graph("openipu", cache_dir=None, exclude_type_checking_imports=True)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # What imports nothing that is left, and what nothing left imports, is on no circle.
    while True:
        needed = {name for names in imported.values() for name in names}
        idle = {module for module, names in imported.items() if not names or module not in needed}
        if not idle:
            break
        imported = {module: names - idle for module, names in imported.items() if module not in idle}
    assert not imported, f"These modules import each other: {', '.join(sorted(imported))}."

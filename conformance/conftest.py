"""Makes `pytest conformance --endpoint NAME` work: the hooks of the plugin, by name.

(`pytest_plugins` here would make `pytest .` fail, since this is no top-level conftest.)
"""

from utterwire_conformance.plugin import (
    pytest_addoption,
    pytest_collect_file,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    pytest_report_header,
    pytest_report_teststatus,
    pytest_runtestloop,
    pytest_sessionfinish,
    pytest_sessionstart,
    pytest_terminal_summary,
    pytest_unconfigure,
)

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_report_header",
    "pytest_report_teststatus",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]

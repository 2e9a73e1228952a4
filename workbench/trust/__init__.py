"""Nothing that another user could have written is run, executed as a command or blocked on.

`docs/security.md` says what is trusted, and what is not.
"""

from workbench.trust.folders import (
    HeldFolder,
    Stranger,
    is_of_this_user,
    made_private,
    stranger_in,
)
from workbench.trust.opening import (
    NotAFileError,
    OpenFile,
    TooLargeError,
    open_beneath,
    open_regular,
    read_regular,
)
from workbench.trust.seal import Seal, SealError
from workbench.trust.temporary import own_folders, private_folder, private_socket_folder
from workbench.trust.text import csv_cell, error_message, harmless, harmless_json, printable
from workbench.trust.writing import through_no_link, whole_file, write_whole

__all__ = [
    "HeldFolder",
    "NotAFileError",
    "OpenFile",
    "Seal",
    "SealError",
    "Stranger",
    "TooLargeError",
    "csv_cell",
    "error_message",
    "harmless",
    "harmless_json",
    "is_of_this_user",
    "made_private",
    "open_beneath",
    "open_regular",
    "own_folders",
    "printable",
    "private_folder",
    "private_socket_folder",
    "read_regular",
    "stranger_in",
    "through_no_link",
    "whole_file",
    "write_whole",
]

"""Digest of the code in an object file. Candidates with equal digests run the same instructions on the same data.

Debug information is left out. Names are included, since they distinguish sections and symbols: where TVM names the
parameters of two equal kernels differently, the digests differ, and both kernels are measured.
"""

from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, SymbolTableSection

from autosched.model import code_name


def digest_of(path: Path) -> str:
    """Returns the name, as `code_name` makes it, of what a linker takes from an ELF object file.

    This includes loaded sections, their relocations, and symbols. Empty for a file of another format.
    """
    try:
        with path.open("rb") as file:
            return _digest(ELFFile(file))
    except ELFError:
        return ""


def _digest(elf: ELFFile) -> str:
    content, size = [elf["e_machine"].encode()], 0
    sections = list(elf.iter_sections())
    symbols = {at: _symbols(one, sections) for at, one in enumerate(sections) if isinstance(one, SymbolTableSection)}
    for section in sections:
        if isinstance(section, RelocationSection) and _is_loaded(sections[section["sh_info"]]):
            table = symbols[section["sh_link"]]
            numbers = [
                (one["r_offset"], one["r_info_type"], one.entry.get("r_addend", 0), table[one["r_info_sym"]])
                for one in section.iter_relocations()
            ]
            content.append(repr((section.name, numbers)).encode())
        elif _is_loaded(section):
            data = section.data()
            content += [repr((section.name, section["sh_size"], len(data))).encode(), data]
            size += section["sh_size"]
    defined = [one for table in symbols.values() for one in table if one is not None]
    content.append(repr(defined).encode())
    return code_name(b"".join(content), size)


def _symbols(table: SymbolTableSection, sections: list[Section]) -> list[tuple[str, str, int, int] | None]:
    """Returns name, section, value and size of each symbol; None for symbols of debug information and of file names."""
    found: list[tuple[str, str, int, int] | None] = []
    for symbol in table.iter_symbols():
        index = symbol["st_shndx"]  # a section index, or a name such as SHN_UNDEF
        known = _is_loaded(sections[index]) if isinstance(index, int) else symbol["st_info"]["type"] != "STT_FILE"
        place = sections[index].name if isinstance(index, int) else index
        found.append((symbol.name, place, symbol["st_value"], symbol["st_size"]) if known else None)
    return found


def _is_loaded(section: Section) -> bool:
    return bool(section["sh_flags"] & SH_FLAGS.SHF_ALLOC)

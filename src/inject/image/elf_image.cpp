#include "inject/image/elf_image.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include <elf.h>
#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "inject/image/contents.hpp"
#include "inject/limits.hpp"

namespace amalgam::detail {

namespace {

/// Symbols that cannot travel, and why.
struct refusal {
    std::string_view import;
    std::string_view why;
};
constexpr refusal refused_imports[] = {
    {"__cxa_thread_atexit",
     "it has a thread_local object with a destructor, which may run after the image is gone; keep "
     "a plain value or a pointer there"},
    {"dlopen", "it loads libraries itself, which may not exist where it runs"},
    {"atexit",
     "it uses atexit(), whose functions run only when the process exits; use a static object with "
     "a destructor, or a function with __attribute__((destructor))"},
    {"at_quick_exit", "it uses at_quick_exit(), whose functions run only when the process exits"},
    {"pthread_atfork", "it uses pthread_atfork(), which may call it after the image is gone"},
};
/// Prefixes of functions from compiler-specific runtimes; `why`: the option that needs them.
constexpr refusal refused_beginnings[] = {
    {"__ubsan_", "-fsanitize=undefined"}, {"__asan_", "-fsanitize=address"},
    {"__tsan_", "-fsanitize=thread"},     {"__msan_", "-fsanitize=memory"},
    {"__sanitizer_", "-fsanitize"},       {"__gcov_", "--coverage"},
    {"__llvm_profile_", "-fprofile"},
};

[[noreturn]] void refuse(errc why, const std::string& sentence) {
    throw error(why, sentence);
}

/// Reads a shared object; checks that each structure is within bounds.
class elf_reader {
public:
    explicit elf_reader(const_bytes object) : object_(object) {
        header_ = at<Elf64_Ehdr>(0);
        if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
            header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
            header_.e_type != ET_DYN)
            refuse(errc::invalid, "this is not a 64-bit ELF shared object");
        for (unsigned i = 0; i < header_.e_phnum; ++i)
            programs_.push_back(at<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr)));
        for (const Elf64_Phdr& each : programs_)
            if (each.p_type == PT_DYNAMIC) read_dynamic(each);
    }

    const Elf64_Ehdr& header() const noexcept { return header_; }
    const std::vector<Elf64_Phdr>& programs() const noexcept { return programs_; }

    /// Entry of the dynamic section; empty if missing.
    std::optional<std::uint64_t> entry(std::int64_t tag) const {
        const auto at = dynamic_.find(tag);
        if (at == dynamic_.end()) return std::nullopt;
        return at->second;
    }
    /// The first program header of that type.
    const Elf64_Phdr* program(std::uint32_t type) const {
        for (const Elf64_Phdr& each : programs_)
            if (each.p_type == type) return &each;
        return nullptr;
    }
    template <typename T>
    std::vector<T> table(std::int64_t where, std::int64_t how_long) const {
        std::vector<T> all;
        const auto start = entry(where), bytes = entry(how_long);
        if (!start || !bytes) return all;
        for (std::uint64_t i = 0; i < *bytes / sizeof(T); ++i)
            all.push_back(at<T>(file_offset(*start) + i * sizeof(T)));
        return all;
    }
    std::vector<Elf64_Sym> symbols() const {
        std::vector<Elf64_Sym> all;
        const auto hash = entry(DT_HASH), start = entry(DT_SYMTAB);
        if (!hash || !start) return all;
        const auto count = at<std::uint32_t>(file_offset(*hash) + 4);
        for (std::uint64_t i = 0; i < count; ++i)
            all.push_back(at<Elf64_Sym>(file_offset(*start) + i * sizeof(Elf64_Sym)));
        return all;
    }
    std::string_view name_of(const Elf64_Sym& symbol) const {
        return text(file_offset(entry(DT_STRTAB).value_or(0)) + symbol.st_name);
    }
    /// Address and size of a section by name; empty if missing.
    std::optional<image_range> section(std::string_view name) const {
        if (header_.e_shnum == 0) return std::nullopt;
        const auto header_of = [&](std::size_t i) {
            return at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
        };
        const Elf64_Shdr names = header_of(header_.e_shstrndx);
        for (unsigned i = 0; i < header_.e_shnum; ++i) {
            const Elf64_Shdr each = header_of(i);
            if (text(names.sh_offset + each.sh_name) != name) continue;
            return image_range{static_cast<std::uint32_t>(each.sh_addr),
                               static_cast<std::uint32_t>(each.sh_size)};
        }
        return std::nullopt;
    }
    const_bytes content(const Elf64_Phdr& of) const {
        if (of.p_offset > object_.size() || of.p_filesz > object_.size() - of.p_offset)
            refuse(errc::invalid, "the shared object is truncated");
        return object_.subspan(of.p_offset, of.p_filesz);
    }

private:
    template <typename T>
    T at(std::uint64_t offset) const {
        if (offset > object_.size() || sizeof(T) > object_.size() - offset)
            refuse(errc::invalid, "the shared object is truncated");
        T found;
        std::memcpy(&found, object_.data() + offset, sizeof(T));
        return found;
    }
    std::string_view text(std::uint64_t offset) const {
        if (offset >= object_.size()) refuse(errc::invalid, "the shared object is truncated");
        const char* const start = reinterpret_cast<const char*>(object_.data()) + offset;
        return {start, ::strnlen(start, object_.size() - offset)};
    }
    std::uint64_t file_offset(std::uint64_t address) const {
        for (const Elf64_Phdr& each : programs_)
            if (each.p_type == PT_LOAD && address >= each.p_vaddr &&
                address - each.p_vaddr < each.p_filesz)
                return each.p_offset + (address - each.p_vaddr);
        refuse(errc::invalid, "the shared object refers to an address outside it");
    }
    void read_dynamic(const Elf64_Phdr& where) {
        for (std::uint64_t i = 0; i < where.p_filesz / sizeof(Elf64_Dyn); ++i) {
            const auto each = at<Elf64_Dyn>(where.p_offset + i * sizeof(Elf64_Dyn));
            if (each.d_tag == DT_NULL) return;
            dynamic_[each.d_tag] = each.d_un.d_val;
        }
    }

    const_bytes object_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Phdr> programs_;
    std::map<std::int64_t, std::uint64_t> dynamic_;
};

enum class elf_fixup : std::uint8_t { relative, symbol, thread_module, thread_offset, refused };

elf_fixup fixup_of(std::uint16_t machine, std::uint32_t type) {
    if (machine == EM_X86_64) {
        switch (type) {
            case R_X86_64_RELATIVE:
                return elf_fixup::relative;
            case R_X86_64_64:
            case R_X86_64_GLOB_DAT:
            case R_X86_64_JUMP_SLOT:
                return elf_fixup::symbol;
            case R_X86_64_DTPMOD64:
                return elf_fixup::thread_module;
            case R_X86_64_DTPOFF64:
                return elf_fixup::thread_offset;
            default:
                return elf_fixup::refused;
        }
    }
    switch (type) {
        case R_AARCH64_RELATIVE:
            return elf_fixup::relative;
        case R_AARCH64_ABS64:
        case R_AARCH64_GLOB_DAT:
        case R_AARCH64_JUMP_SLOT:
            return elf_fixup::symbol;
        case R_AARCH64_TLS_DTPMOD:
            return elf_fixup::thread_module;
        case R_AARCH64_TLS_DTPREL:
            return elf_fixup::thread_offset;
        default:
            return elf_fixup::refused;
    }
}

[[noreturn]] void refuse_indirect() {
    refuse(
        errc::unsupported,
        "it has indirect functions, which a loader would resolve (ifunc, target_clones); choose in "
        "a function of your own with __builtin_cpu_supports(), or build for one kind of processor");
}

bool is_thread_descriptor(std::uint16_t machine, std::uint32_t type) {
    return type == (machine == EM_X86_64 ? R_X86_64_TLSDESC : R_AARCH64_TLSDESC);
}

bool is_indirect(std::uint16_t machine, std::uint32_t type) {
    return machine == EM_X86_64 ? type == R_X86_64_IRELATIVE : type == R_AARCH64_IRELATIVE;
}

/// Builds an image from what a reader finds.
class elf_converter {
public:
    elf_converter(const elf_reader& from, std::string_view name, std::size_t payload_alignment)
        : from_(from), symbols_(from.symbols()) {
        image_.name = name;
        image_.payload_alignment = static_cast<std::uint32_t>(payload_alignment);
    }

    std::vector<std::byte> convert() {
        const std::uint16_t machine = from_.header().e_machine;
        if (machine != EM_X86_64 && machine != EM_AARCH64)
            refuse(errc::unsupported,
                   "it is for an unsupported processor, expected x86-64 or AArch64");
        image_.architecture = machine == EM_X86_64 ? architecture::x86_64 : architecture::aarch64;
        if (from_.entry(DT_TEXTREL))
            refuse(errc::unsupported, "it has text relocations; compile all of it with -fPIC");
        if (from_.entry(DT_INIT) || from_.entry(DT_FINI))
            refuse(errc::unsupported, "it has legacy _init or _fini functions; use constructors");
        if (from_.entry(DT_NEEDED))
            refuse(errc::unsupported, "it needs libraries, which may not exist where it runs");
        take_segments();
        take_thread_data();
        take_exports();
        for (const auto& [where, how_long] :
             {std::pair{DT_RELA, DT_RELASZ}, std::pair{DT_JMPREL, DT_PLTRELSZ}})
            for (const Elf64_Rela& each : from_.table<Elf64_Rela>(where, how_long))
                take_relocation(each);
        image_.begin = functions(DT_INIT_ARRAY, DT_INIT_ARRAYSZ);
        image_.end = functions(DT_FINI_ARRAY, DT_FINI_ARRAYSZ);
        if (const auto unwind = from_.section(".eh_frame"))
            image_.unwind = {rebased(unwind->offset), unwind->bytes};
        leave_out_what_is_not_needed();
        if (const auto why = image_.fault()) refuse(errc::invalid, "the image is invalid: " + *why);
        return image_contents::to_bytes(image_);
    }

private:
    std::uint32_t rebased(std::uint64_t address) const {
        if (address < base_ || address - base_ > limits::max_image_memory)
            refuse(errc::invalid, "the shared object refers to an address outside the image");
        return static_cast<std::uint32_t>(address - base_);
    }

    void take_segments() {
        const std::uint64_t names = from_.entry(DT_STRTAB).value_or(0);
        bool first = true;
        for (const Elf64_Phdr& each : from_.programs()) {
            if (each.p_type != PT_LOAD) continue;
            const bool names_only = each.p_flags == PF_R && names >= each.p_vaddr &&
                                    names - each.p_vaddr < each.p_filesz;
            if (names_only) continue;  // An image has its own symbol names.
            if ((each.p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
                refuse(errc::unsupported, "it has memory that is both writable and executable");
            if (std::exchange(first, false))
                base_ = each.p_vaddr / image_contents::page * image_contents::page;
            image_segment one;
            one.rights = (each.p_flags & PF_X) != 0   ? image_rights::read_execute
                         : (each.p_flags & PF_W) != 0 ? image_rights::read_write
                                                      : image_rights::read;
            one.offset = rebased(each.p_vaddr);
            one.bytes = static_cast<std::uint32_t>(each.p_memsz);
            const const_bytes content = from_.content(each);
            const auto* const start = reinterpret_cast<const std::uint8_t*>(content.data());
            contents_.emplace_back(start, start + content.size());
            image_.segments.push_back(one);
            image_.memory_bytes = one.offset + one.bytes;
        }
        if (const Elf64_Phdr* const later = from_.program(PT_GNU_RELRO))
            image_.read_only_later = {rebased(later->p_vaddr),
                                      static_cast<std::uint32_t>(later->p_filesz)};
    }
    /// Omits unneeded data: the loader's tables, and words filled in when linking. Trailing zeros
    /// are not stored.
    void leave_out_what_is_not_needed() {
        const auto clear = [&](std::uint64_t offset, std::uint64_t bytes) {
            for (std::size_t i = 0; i < contents_.size(); ++i) {
                const std::uint64_t from = image_.segments[i].offset;
                for (std::uint64_t at = std::max(offset, from);
                     at < std::min(offset + bytes, from + contents_[i].size()); ++at)
                    contents_[i][at - from] = 0;
            }
        };
        if (const Elf64_Phdr* const loading = from_.program(PT_DYNAMIC))
            clear(rebased(loading->p_vaddr), loading->p_filesz);
        if (const auto table = from_.section(".got"))  // Its first word: the address of that.
            clear(rebased(table->offset), sizeof(std::uint64_t));
        for (const image_relocation& each : image_.relocations)
            clear(each.offset, sizeof(std::uint64_t));
        for (std::size_t i = 0; i < contents_.size(); ++i) {
            // Unwind records are read up to the terminating zeros.
            const bool has_unwind =
                image_.unwind.bytes != 0 && image_.unwind.offset >= image_.segments[i].offset &&
                image_.unwind.offset - image_.segments[i].offset < contents_[i].size();
            while (!has_unwind && !contents_[i].empty() && contents_[i].back() == 0)
                contents_[i].pop_back();
            image_.segments[i].content = contents_[i];
        }
    }
    void take_thread_data() {
        const Elf64_Phdr* const data = from_.program(PT_TLS);
        if (data == nullptr) return;
        image_.thread_data = {
            {rebased(data->p_vaddr), static_cast<std::uint32_t>(data->p_filesz)},
            static_cast<std::uint32_t>(data->p_memsz),
            static_cast<std::uint32_t>(std::max<std::uint64_t>(1, data->p_align))};
    }
    void take_exports() {
        for (const Elf64_Sym& each : symbols_) {
            if (each.st_shndx == SHN_UNDEF || ELF64_ST_BIND(each.st_info) != STB_GLOBAL ||
                ELF64_ST_TYPE(each.st_info) == STT_TLS)
                continue;
            if (ELF64_ST_TYPE(each.st_info) == STT_GNU_IFUNC) refuse_indirect();
            image_.exports.push_back({from_.name_of(each), rebased(each.st_value)});
        }
    }
    std::uint32_t import_of(const Elf64_Sym& symbol) {
        const std::string_view name = from_.name_of(symbol);
        for (const refusal& each : refused_imports)
            if (each.import == name) refuse(errc::unsupported, std::string(each.why));
        for (const refusal& each : refused_beginnings)
            if (name.starts_with(each.import))
                refuse(errc::unsupported, fmt::format("it was compiled with {}, whose functions "
                                                      "({}) no target has; compile it without",
                                                      each.why, name));
        const auto [at, fresh] =
            imports_.try_emplace(name, static_cast<std::uint32_t>(image_.imports.size()));
        if (fresh) image_.imports.push_back({name, ELF64_ST_BIND(symbol.st_info) == STB_WEAK});
        return at->second;
    }
    void take_relocation(const Elf64_Rela& from) {
        const std::uint32_t type = ELF64_R_TYPE(from.r_info);
        if (type == R_X86_64_NONE) return;  // Meaningless on every architecture.
        const std::size_t index = ELF64_R_SYM(from.r_info);
        if (index >= symbols_.size() && index != 0)
            refuse(errc::invalid, "a relocation names a symbol that does not exist");
        const Elf64_Sym symbol = index == 0 ? Elf64_Sym{} : symbols_[index];
        const bool own = symbol.st_shndx != SHN_UNDEF;
        if (is_indirect(from_.header().e_machine, type) ||
            (own && ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC))
            refuse_indirect();
        if (is_thread_descriptor(from_.header().e_machine, type))
            refuse(errc::unsupported,
                   "it has thread-local data that is reached by TLS descriptors, which only a "
                   "loader resolves; compile all of it by GCC, with -mtls-dialect=trad for "
                   "AArch64, or without thread_local");
        image_relocation made{.offset = rebased(from.r_offset)};
        switch (fixup_of(from_.header().e_machine, type)) {
            case elf_fixup::relative:
                made.addend = rebased(static_cast<std::uint64_t>(from.r_addend));
                break;
            case elf_fixup::symbol:
                if (own) {
                    made.addend =
                        rebased(symbol.st_value + static_cast<std::uint64_t>(from.r_addend));
                } else {
                    made.what = image_fixup::import;
                    made.symbol = import_of(symbol);
                    made.addend = from.r_addend;
                }
                break;
            case elf_fixup::thread_module:
            case elf_fixup::thread_offset:
                if (index != 0 && !own)
                    refuse(errc::unsupported,
                           fmt::format("it uses the thread-local variable {} of the process that "
                                       "it runs in, which it cannot access; use a function",
                                       from_.name_of(symbol)));
                made.what = fixup_of(from_.header().e_machine, type) == elf_fixup::thread_module
                                ? image_fixup::thread_module
                                : image_fixup::thread_offset;
                if (made.what == image_fixup::thread_offset)
                    made.addend = static_cast<std::int64_t>(symbol.st_value) + from.r_addend;
                break;
            case elf_fixup::refused:
                refuse(errc::unsupported,
                       fmt::format("it has relocations of type {}, which images do not support; "
                                   "compile all of it as amalgam inject build does",
                                   type));
        }
        image_.relocations.push_back(made);
    }
    image_range functions(std::int64_t where, std::int64_t how_long) const {
        const auto start = from_.entry(where), bytes = from_.entry(how_long);
        if (!start || !bytes || *bytes == 0) return {};
        return {rebased(*start), static_cast<std::uint32_t>(*bytes)};
    }

    const elf_reader& from_;
    const std::vector<Elf64_Sym> symbols_;
    image_contents image_;
    std::uint64_t base_ = 0;
    std::vector<std::vector<std::uint8_t>> contents_;  // Of the segments.
    std::map<std::string_view, std::uint32_t> imports_;
};

}  // namespace

result<std::vector<std::byte>> image_from_elf(const_bytes object, std::string_view name,
                                              std::size_t payload_alignment) {
    try {
        const elf_reader from(object);
        return elf_converter(from, name, payload_alignment).convert();
    } catch (const error& why) {
        return {why.code().code, why.what()};
    }
}

}  // namespace amalgam::detail

#include "fabric/registry/plugin_abi.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/plugin.hpp>

namespace amalgam::detail {
namespace {

constexpr std::string_view section_name = "amalgam_transport_abi";
constexpr std::size_t most_told = 4;

bool read_at(int file, std::uint64_t offset, void* to, std::size_t bytes) {
    return ::pread(file, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool is_of_this_machine(const ElfW(Ehdr) & header) {
    constexpr int word = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == word &&
           header.e_shentsize == sizeof(ElfW(Shdr));
}

std::vector<std::pair<std::string_view, std::string_view>> fields_of(std::string_view text) {
    std::vector<std::pair<std::string_view, std::string_view>> all;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(';'));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        const std::size_t at = std::min(one.find('='), one.size());
        all.emplace_back(one.substr(0, at), one.substr(std::min(at + 1, one.size())));
    }
    return all;
}

}  // namespace

std::optional<std::string> plugin_abi_of(const std::string& file) {
    const unique_fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    ElfW(Ehdr) header;
    if (!opened || !read_at(opened.get(), 0, &header, sizeof header) || !is_of_this_machine(header))
        return std::nullopt;
    std::vector<ElfW(Shdr)> sections(header.e_shnum);
    if (header.e_shstrndx >= sections.size() ||
        !read_at(opened.get(), header.e_shoff, sections.data(),
                 sections.size() * sizeof sections[0]))
        return std::nullopt;
    const std::uint64_t names = sections[header.e_shstrndx].sh_offset;
    for (const auto& section : sections) {
        char name[section_name.size() + 1];
        if (!read_at(opened.get(), names + section.sh_name, name, sizeof name) ||
            std::string_view(name, sizeof name) !=
                std::string_view(section_name.data(), sizeof name))
            continue;
        char text[sizeof plugin_abi_text::text];
        if (section.sh_size < sizeof text ||
            !read_at(opened.get(), section.sh_offset, text, sizeof text))
            return std::nullopt;
        return std::string(text, ::strnlen(text, sizeof text));
    }
    return std::nullopt;
}

std::string plugin_abi_differences(std::string_view theirs, std::string_view ours) {
    const auto there = fields_of(theirs), here = fields_of(ours);
    const auto value_in = [](const auto& fields, std::string_view name) {
        for (const auto& [each, value] : fields)
            if (each == name) return value;
        return std::string_view("unspecified");
    };
    std::vector<std::string> told;
    for (const auto& [name, value] : here)
        if (const auto other = value_in(there, name); other != value)
            told.push_back(fmt::format("{} is {}, but {} in this program", name, other, value));
    for (const auto& [name, value] : there)
        if (value_in(here, name) == "unspecified")
            told.push_back(fmt::format("{} is {}, but unspecified in this program", name, value));
    if (told.size() > most_told) {
        const std::size_t more = told.size() - most_told;
        told.resize(most_told);
        told.push_back(fmt::format("and {} more", more));
    }
    return fmt::format("{}", fmt::join(told, "; "));
}

}  // namespace amalgam::detail

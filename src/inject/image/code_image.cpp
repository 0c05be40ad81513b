#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/detail/whole_file.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>

#include "inject/image/contents.hpp"
#include "inject/image/unwind_records.hpp"
#include "inject/limits.hpp"

namespace amalgam {

architecture this_architecture() noexcept {
#if defined(__aarch64__)
    return architecture::aarch64;
#else
    return architecture::x86_64;
#endif
}

std::string_view name(architecture which) noexcept {
    switch (which) {
        case architecture::x86_64:
            return "x86-64";
        case architecture::aarch64:
            return "AArch64";
    }
    return "unknown";
}

namespace detail {
namespace {

bool is_name_char(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

bool is_name(std::string_view text) noexcept {
    return !text.empty() && text.size() <= 64 && text.front() != '.' &&
           std::all_of(text.begin(), text.end(), is_name_char);
}

/// The segment that contains the whole range; null if none.
const image_segment* holder_of(const image_contents& image, image_range range) noexcept {
    for (const image_segment& each : image.segments)
        if (range.offset >= each.offset && range.bytes <= each.bytes &&
            range.offset - each.offset <= each.bytes - range.bytes)
            return &each;
    return nullptr;
}

/// The bytes of a range, if one segment stores all of them.
std::span<const std::uint8_t> content_of(const image_contents& image, image_range range) noexcept {
    const image_segment* const where = holder_of(image, range);
    if (where == nullptr) return {};
    const std::size_t from = range.offset - where->offset;
    if (from + range.bytes > where->content.size()) return {};
    return where->content.subspan(from, range.bytes);
}

std::optional<std::string> fault_of_segments(const image_contents& image) {
    constexpr std::uint32_t page = image_contents::page;
    std::uint64_t next = 0;
    for (const image_segment& each : image.segments) {
        if (each.rights > image_rights::read_execute) return "a segment has unknown rights";
        if (each.offset / page * page < next) return "its segments overlap, or share a page";
        if (each.content.size() > each.bytes) return "a segment is longer than its memory";
        const std::uint64_t end = std::uint64_t{each.offset} + each.bytes;
        if (end > image.memory_bytes) return "a segment lies outside of its memory";
        next = (end + page - 1) / page * page;
    }
    const image_range later = image.read_only_later;
    if (later.bytes == 0) return std::nullopt;
    const image_segment* const where = holder_of(image, later);
    if (where == nullptr || where->rights != image_rights::read_write)
        return "what becomes read-only is not in a writable segment";
    return std::nullopt;
}

std::optional<std::string> fault_of_relocations(const image_contents& image) {
    for (const image_relocation& each : image.relocations) {
        const image_segment* const where = holder_of(image, {each.offset, 8});
        if (where == nullptr || where->rights != image_rights::read_write)
            return "a relocation is not in a writable segment";
        if (each.what > image_fixup::thread_offset) return "a relocation is of an unknown kind";
        if (each.what == image_fixup::relative &&
            (each.addend < 0 || each.addend > std::int64_t{image.memory_bytes}))
            return "a relocation points outside of the image";
        if (each.what == image_fixup::import && each.symbol >= image.imports.size())
            return "a relocation names an import that does not exist";
        if (each.what == image_fixup::thread_offset &&
            (each.addend < 0 || each.addend > std::int64_t{image.thread_data.bytes}))
            return "a relocation points outside of the thread-local data";
    }
    return std::nullopt;
}

std::optional<std::string> fault_of_unwind(const image_contents& image) {
    if (image.unwind.bytes == 0) return std::nullopt;
    if (image.unwind.offset % 4 != 0) return "its unwind records are not aligned";
    const image_segment* const where = holder_of(image, image.unwind);
    if (where != nullptr && where->rights == image_rights::read_write)
        return "its unwind records are in a writable segment";
    return fault_of_unwind_records(image, content_of(image, image.unwind));
}

std::optional<std::string> fault_of_thread_data(const image_contents& image) {
    const image_thread_data& data = image.thread_data;
    if (data.bytes > (1u << 20) || data.initial.bytes > data.bytes)
        return "its thread-local data is too long, expected at most 1 MiB";
    if (!std::has_single_bit(data.alignment) || data.alignment > image_contents::page)
        return "the alignment of its thread-local data is invalid";
    if (data.initial.bytes != 0 && holder_of(image, data.initial) == nullptr)
        return "its thread-local data is not in the image";
    return std::nullopt;
}

std::optional<std::string> fault_of_functions(const image_contents& image) {
    for (const image_range& each : {image.begin, image.end}) {
        if (each.bytes % 8 != 0 || each.offset % 8 != 0 ||
            (each.bytes != 0 && holder_of(image, each) == nullptr))
            return "its init or fini functions are not in the image";
    }
    for (const image_export& each : image.exports)
        if (each.name.empty() || holder_of(image, {each.offset, 1}) == nullptr)
            return "an export is not in the image";
    for (const image_import& each : image.imports)
        if (each.name.empty() || each.name.find('\0') != std::string_view::npos)
            return "an import has an invalid name";
    return std::nullopt;
}

image_hash hash_of(const_bytes bytes) {
    image_hash hash;
    ::crypto_generichash(hash.data(), hash.size(),
                         reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), nullptr,
                         0);
    return hash;
}

}  // namespace

std::optional<std::string> image_contents::fault() const {
    if (!is_name(name)) return "its name is not 1 to 64 letters, digits, _, - or .";
    if (architecture != amalgam::architecture::x86_64 &&
        architecture != amalgam::architecture::aarch64)
        return "it is for an unknown architecture";
    if (memory_bytes == 0 || memory_bytes > limits::max_image_memory)
        return "it takes no memory, or more than 64 MiB";
    if (!std::has_single_bit(payload_alignment) ||
        payload_alignment > limits::max_payload_alignment)
        return "its payload's alignment is not a power of two up to 4096";
    if (segments.empty() || segments.size() > 16) return "it has no segments, or more than 16";
    if (relocations.size() > limits::max_image_parts || imports.size() > limits::max_image_parts ||
        exports.size() > limits::max_image_parts)
        return "it has more than 65,536 relocations, imports or exports";
    for (const auto check : {fault_of_segments, fault_of_thread_data, fault_of_relocations,
                             fault_of_unwind, fault_of_functions})
        if (auto why = check(*this)) return why;
    return std::nullopt;
}

const image_export* image_contents::find(std::string_view which) const noexcept {
    const auto at = std::find_if(exports.begin(), exports.end(),
                                 [&](const image_export& each) { return each.name == which; });
    return at == exports.end() ? nullptr : &*at;
}

std::vector<std::byte> image_contents::to_bytes(const image_contents& what) {
    body into;
    archive_writer write(into);
    write(magic, version, what);
    return {into.bytes().begin(), into.bytes().end()};
}

}  // namespace detail

namespace {

using detail::image_contents;

/// Empty contents for an empty image.
const image_contents& of(const std::shared_ptr<const image_contents>& contents) noexcept {
    static const image_contents none;
    return contents != nullptr ? *contents : none;
}

/// Parses what follows the magic number. Returns why it is invalid, or nothing.
std::optional<std::string> read_one(archive_reader& from, image_contents& into) {
    std::uint16_t version = 0;
    from(version);
    if (version != image_contents::version)
        return fmt::format("it has version {} of the format, expected {}", version,
                           image_contents::version);
    from(into);
    if (!from.ok()) return std::string(from.why());
    into.architectures = {into.architecture};
    return into.fault();
}

/// The part for this process's architecture, or the first.
std::optional<std::string> read_joined(archive_reader& from, image_contents& into) {
    detail::joined_images all;
    from(all);
    if (!from.ok()) return std::string(from.why());
    if (all.parts.empty() || all.parts.size() > detail::limits::max_joined_images)
        return "it joins no images, or more than 8";
    std::vector<architecture> seen;
    for (const auto& each : all.parts) {
        archive_reader part(std::as_bytes(each));
        image_contents contents;
        std::uint32_t magic = 0;
        part(magic);
        if (magic != image_contents::magic) return "a part of it is not an image";
        if (auto why = read_one(part, contents)) return why;
        if (part.remaining() != 0) return "a part has trailing bytes";
        if (std::find(seen.begin(), seen.end(), contents.architecture) != seen.end())
            return "two parts are for the same processor";
        if (!seen.empty() && contents.name != into.name) return "its parts have different names";
        seen.push_back(contents.architecture);
        const bool better = seen.size() == 1 || contents.architecture == this_architecture();
        if (!better) continue;
        contents.bytes = std::move(into.bytes);
        into = std::move(contents);
    }
    into.architectures = seen;
    return std::nullopt;
}

}  // namespace

result<code_image> code_image::parse(std::vector<std::byte> bytes) {
    const auto refuse = [](std::string why) -> result<code_image> {
        return {errc::invalid, "this is not a usable image: " + why};
    };
    if (::sodium_init() < 0) return {errc::unsupported, "cannot initialize libsodium"};
    auto read = std::make_shared<image_contents>();
    read->bytes = std::move(bytes);
    archive_reader from(read->bytes);
    std::uint32_t magic = 0;
    from(magic);
    if (magic != image_contents::magic && magic != detail::joined_images::magic)
        return refuse("it does not begin like one; amalgam inject build makes them");
    const auto why =
        magic == image_contents::magic ? read_one(from, *read) : read_joined(from, *read);
    if (why) return refuse(*why);
    const std::size_t unsigned_bytes = read->bytes.size() - from.remaining();
    if (from.remaining() != 0) {
        from(magic, read->signature.emplace());
        if (magic != detail::image_signature::magic) return refuse("it has trailing bytes");
    }
    if (!from.ok() || from.remaining() != 0)
        return refuse(from.ok() ? "it has trailing bytes" : std::string(from.why()));
    if (read->signature)
        if (const auto fault = detail::fault_of_manifest(read->signature->manifest))
            return refuse(*fault);
    read->hash = detail::hash_of(const_bytes(read->bytes).first(unsigned_bytes));
    read->unsigned_bytes = unsigned_bytes;
    // A signed image's number depends on its signature: having only the code does not suffice to
    // compute it.
    read->number = load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(
        read->signature ? detail::hash_of(read->bytes).data() : read->hash.data()));
    code_image image;
    image.contents_ = std::move(read);
    return image;
}

code_image code_image::joined(const std::vector<code_image>& parts) {
    detail::joined_images all;
    for (const code_image& each : parts) {
        if (!each) throw error(errc::invalid, "one of the images to join is empty; load it first");
        const const_bytes bytes = each.bytes().first(each.contents().unsigned_bytes);
        all.parts.emplace_back(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
    body into;
    archive_writer write(into);
    write(detail::joined_images::magic, all);
    auto image = parse({into.bytes().begin(), into.bytes().end()});
    if (!image) throw error(image.code(), image.sentence());
    return std::move(*image);
}

std::vector<architecture> code_image::architectures() const {
    return of(contents_).architectures;
}

code_image code_image::load(const std::string& path) {
    auto bytes = detail::read_file(path, detail::limits::max_image_file_bytes);
    if (!bytes)
        throw error(bytes.code(), fmt::format("the image {} {}; expected one that amalgam inject "
                                              "build made",
                                              path, bytes.sentence()));
    auto image = parse(std::move(*bytes));
    if (!image) throw error(image.code(), fmt::format("{}: {}", path, image.sentence()));
    return std::move(*image);
}

code_image code_image::find(std::string_view name) {
    const char* const said = std::getenv("AMALGAM_IMAGE_PATH");
    const std::string folders = said != nullptr && *said != '\0' ? said : ".";
    if (!detail::is_name(name))
        throw error(
            errc::invalid,
            fmt::format(
                "\"{}\" is not the name of an image, expected 1 to 64 letters, digits, _, - or .",
                name));
    for (std::string_view left = folders; !left.empty();) {
        const std::string_view folder = left.substr(0, left.find(':'));
        left.remove_prefix(std::min(left.size(), folder.size() + 1));
        const std::string path = fmt::format("{}/{}.image", folder, name);
        if (std::ifstream(path)) return load(path);
    }
    throw error(
        errc::not_found,
        fmt::format(
            "there is no {}.image in {}; AMALGAM_IMAGE_PATH names the folders, separated by colons",
            name, folders));
}

void code_image::save(const std::string& path) const {
    if (contents_ == nullptr)
        throw error(errc::invalid, "there is no image to save; load() or find() returns one");
    // What it replaces may be the only copy, or be read meanwhile.
    const detail::write_fault why = detail::write_whole_file(
        path, bytes(),
        {.keeps_mode = true, .follows_links = true, .special = detail::special_file::written});
    if (why)
        throw error(errc::denied,
                    fmt::format("the image {} cannot be written: {}", path, why.text));
}

std::optional<signer_key> code_image::signer() const noexcept {
    const auto& signature = of(contents_).signature;
    return signature ? std::optional(signature->by) : std::nullopt;
}

std::string_view code_image::name() const noexcept {
    return of(contents_).name;
}

amalgam::architecture code_image::architecture() const noexcept {
    return contents_ ? contents_->architecture : this_architecture();
}

const image_hash& code_image::hash() const noexcept {
    return of(contents_).hash;
}

const_bytes code_image::bytes() const noexcept {
    return of(contents_).bytes;
}

std::vector<std::string_view> code_image::imports() const {
    std::vector<std::string_view> all;
    for (const detail::image_import& each : of(contents_).imports)
        all.push_back(each.name);
    return all;
}

std::vector<std::string_view> code_image::exports() const {
    std::vector<std::string_view> all;
    for (const detail::image_export& each : of(contents_).exports)
        all.push_back(each.name);
    return all;
}

std::size_t code_image::payload_alignment() const noexcept {
    return of(contents_).payload_alignment;
}

}  // namespace amalgam

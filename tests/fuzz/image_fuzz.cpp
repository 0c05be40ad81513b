#include <chrono>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/inject/image_manifest.hpp>

#include "fuzz/fuzz.hpp"
#include "inject/image/contents.hpp"
#include "inject/image/elf_image.hpp"
#include "inject/link/linked_image.hpp"

// Images from strangers: refused with a reason, or linked without accessing other memory. Excludes
// anything that would run their code. Includes shared objects, which no stranger sends, but which
// are parsed here.
namespace amalgam::fuzz {

namespace {

using detail::image_contents;
using detail::image_fixup;
using detail::image_rights;

void* some_symbol(std::string_view name) {
    return name == "nobody_has_this" ? nullptr : reinterpret_cast<void*>(&some_symbol);
}

std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string example(bool large) {
    static const std::vector<std::uint8_t> code(100, 0xc3), data(64, 0), records(4, 0);
    image_contents made;
    made.name = "example";
    made.architecture = this_architecture();
    made.memory_bytes = 0x3100;
    made.segments = {{image_rights::read_execute, 0, 100, code},
                     {image_rights::read, 0x1000, 4, records},
                     {image_rights::read_write, 0x2f80, 0x180, data}};
    made.exports = {{"example_main", 0}};
    made.unwind = {0x1000, 4};
    if (large) {
        made.imports = {{"memcpy", false}, {"nobody_has_this", true}};
        made.relocations = {{0x2f80, 0, 16, image_fixup::relative},
                            {0x2f88, 0, 0, image_fixup::import},
                            {0x2f90, 1, 8, image_fixup::import},
                            {0x2f98, 0, 0, image_fixup::thread_module},
                            {0x2fa0, 0, 4, image_fixup::thread_offset}};
        made.thread_data = {{0x2fa8, 8}, 32, 16};
        made.read_only_later = {0x2f80, 0x80};
    }
    return text_of(image_contents::to_bytes(made));
}

}  // namespace

void run_one(const_bytes input) {
    const auto object = detail::image_from_elf(input, "example", 16);
    require(object.operator bool() || !object.sentence().empty(),
            "an object is refused with a reason");

    const auto image = code_image::parse({input.begin(), input.end()});
    if (!image) {
        require(image.code() == errc::invalid && !image.sentence().empty(),
                "an image is refused with a reason");
        return;
    }
    require(!image->verify() || image->signer(), "who has signed is known");
    if (const image_manifest* const says = image->manifest())
        require(!detail::fault_of_manifest(*says) && !to_text(*says).empty(),
                "a manifest that is read keeps its limits, and can be shown");
    const image_contents& what = image->contents();
    if (what.begin.bytes != 0 || what.end.bytes != 0) return;  // They would run.
    try {
        const detail::linked_image linked(*image, some_symbol);
        for (const std::string_view each : image->exports())
            require(linked.find(each) != nullptr, "what it exports is found");
    } catch (const error&) {
        // Another architecture, or missing imports.
    }
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> made{example(false), example(true)};
        const auto one = code_image::parse(
            {reinterpret_cast<const std::byte*>(made[0].data()),
             reinterpret_cast<const std::byte*>(made[0].data() + made[0].size())});
        const code_image joined = code_image::joined({*one});
        made.push_back(text_of({joined.bytes().begin(), joined.bytes().end()}));
        const code_image is_signed =
            one->signed_by(signing_key::generate(),
                           {.version = 3,
                            .not_before = std::chrono::sys_seconds(std::chrono::seconds(1)),
                            .not_after = std::chrono::sys_seconds(std::chrono::seconds(1800000000)),
                            .names = {"node7", "node8"},
                            .groups = {"compute"}});
        made.push_back(text_of({is_signed.bytes().begin(), is_signed.bytes().end()}));
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz

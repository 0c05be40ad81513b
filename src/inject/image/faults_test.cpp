#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/inject/code_image.hpp>

#include "inject/image/contents.hpp"
#include "inject/link/unwind_testing.hpp"

// Faulty images, one fault at a time: each is refused with a message that names it.
namespace amalgam {
namespace {

using namespace detail;

/// Code at 0, records at 0x1000, constants at 0x2000, writable data at 0x3000.
struct example {
    std::vector<std::uint8_t> code = std::vector<std::uint8_t>(0x200, 0xc3);
    std::vector<std::uint8_t> data = std::vector<std::uint8_t>(0x100, 0);
    std::vector<std::uint8_t> constants = std::vector<std::uint8_t>(0x40, 0);
    unwind_text records;
    image_contents contents;

    example() {
        image_contents& made = contents;
        made.name = "example";
        made.architecture = this_architecture();
        made.memory_bytes = 0x3180;
        made.imports = {{"memcpy", false}, {"__gxx_personality_v0", false}};
        made.relocations = {{0x3000, 0, 16, image_fixup::relative},
                            {0x3008, 0, 0, image_fixup::import},
                            {0x3010, 1, 0, image_fixup::import},
                            {0x3018, 0, 0, image_fixup::thread_module},
                            {0x3020, 0, 4, image_fixup::thread_offset}};
        made.exports = {{"example_main", 0}};
        made.thread_data = {{0x3028, 8}, 32, 16};
        made.read_only_later = {0x3000, 0x30};
        made.begin = {0x3040, 8};
        made.end = {0x3048, 8};
        records.offset = 0x1000;
        records.code = {0, 0x200};
        records.personality_word = 0x3010;
        records.table = 0x2000;
    }
    /// Why it is refused; empty if accepted.
    std::string why() {
        const std::vector<std::uint8_t> unwind = records.bytes();
        contents.segments = {
            {image_rights::read_execute, 0, 0x200, code},
            {records.rights, 0x1000, static_cast<std::uint32_t>(unwind.size()), unwind},
            {image_rights::read, 0x2000, 0x40, constants},
            {image_rights::read_write, 0x3000, 0x180, data}};
        contents.unwind = {0x1000, static_cast<std::uint32_t>(unwind.size())};
        if (change_segments) change_segments(contents.segments);
        const auto read = code_image::parse(image_contents::to_bytes(contents));
        if (read) return "";
        EXPECT_EQ(read.code(), errc::invalid);
        return std::string(read.sentence());
    }
    std::function<void(std::vector<image_segment>&)> change_segments;
};

TEST(image_faults, the_example_has_none) {
    EXPECT_EQ(example().why(), "");
}

struct fault {
    const char* why;
    void (*make)(example&);
};

void expect_refused(const std::vector<fault>& all) {
    for (const fault& each : all) {
        example made;
        each.make(made);
        EXPECT_NE(made.why().find(each.why), std::string::npos) << each.why << ": " << made.why();
    }
}

TEST(image_faults, of_segments) {
    using segments = std::vector<image_segment>;
    expect_refused({
        {"unknown rights",
         [](example& e) {
             e.change_segments = [](segments& s) { s[0].rights = static_cast<image_rights>(3); };
         }},
        {"share a page",
         [](example& e) { e.change_segments = [](segments& s) { s[1].offset = 0x1f8; }; }},
        {"longer than its memory",
         [](example& e) { e.change_segments = [](segments& s) { s[0].bytes = 0x1ff; }; }},
        {"outside of its memory", [](example& e) { e.contents.memory_bytes = 0x317f; }},
        {"takes no memory", [](example& e) { e.contents.memory_bytes = 0; }},
        {"more than 64 MiB", [](example& e) { e.contents.memory_bytes = (64u << 20) + 1; }},
        {"no segments", [](example& e) { e.change_segments = [](segments& s) { s.clear(); }; }},
        {"more than 16", [](example& e) { e.change_segments = [](segments& s) { s.resize(17); }; }},
        {"read-only",
         [](example& e) {
             e.contents.read_only_later = {0x2000, 8};
         }},
        {"read-only",
         [](example& e) {
             e.contents.read_only_later = {0x3000, 0x181};
         }},
        {"alignment", [](example& e) { e.contents.payload_alignment = 24; }},
        {"alignment", [](example& e) { e.contents.payload_alignment = 8192; }},
        {"name", [](example& e) { e.contents.name = "a/b"; }},
        {"name", [](example& e) { e.contents.name = ".a"; }},
        {"architecture", [](example& e) { e.contents.architecture = architecture(7); }},
    });
}

TEST(image_faults, of_relocations) {
    expect_refused({
        {"not in a writable segment", [](example& e) { e.contents.relocations[0].offset = 0x10; }},
        {"not in a writable segment",
         [](example& e) { e.contents.relocations[0].offset = 0x3179; }},
        {"not in a writable segment",
         [](example& e) { e.contents.relocations[0].offset = 0xfffffffc; }},
        {"unknown kind", [](example& e) { e.contents.relocations[0].what = image_fixup(4); }},
        {"points outside of the image", [](example& e) { e.contents.relocations[0].addend = -1; }},
        {"points outside of the image",
         [](example& e) { e.contents.relocations[0].addend = 0x3181; }},
        {"names an import", [](example& e) { e.contents.relocations[1].symbol = 2; }},
        {"outside of the thread-local", [](example& e) { e.contents.relocations[4].addend = 33; }},
        {"outside of the thread-local", [](example& e) { e.contents.relocations[4].addend = -1; }},
    });
    example at_its_end;  // One past the end is allowed.
    at_its_end.contents.relocations[0].addend = 0x3180;
    at_its_end.contents.relocations[4].addend = 32;
    EXPECT_EQ(at_its_end.why(), "");
}

TEST(image_faults, of_functions_names_and_thread_local_data) {
    expect_refused({
        {"init or fini functions",
         [](example& e) {
             e.contents.begin = {0x3040, 7};
         }},
        {"init or fini functions",
         [](example& e) {
             e.contents.end = {0x3044, 8};
         }},
        {"init or fini functions",
         [](example& e) {
             e.contents.end = {0x3178, 16};
         }},
        {"an export", [](example& e) { e.contents.exports[0].offset = 0x200; }},
        {"an export", [](example& e) { e.contents.exports[0].name = ""; }},
        {"an import", [](example& e) { e.contents.imports[0].name = ""; }},
        {"an import", [](example& e) { e.contents.imports[0].name = std::string_view("a\0b", 3); }},
        {"too long", [](example& e) { e.contents.thread_data.bytes = (1 << 20) + 1; }},
        {"too long", [](example& e) { e.contents.thread_data.bytes = 7; }},
        {"alignment of its thread", [](example& e) { e.contents.thread_data.alignment = 3; }},
        {"alignment of its thread", [](example& e) { e.contents.thread_data.alignment = 0; }},
        {"alignment of its thread", [](example& e) { e.contents.thread_data.alignment = 8192; }},
        {"not in the image", [](example& e) { e.contents.thread_data.initial.offset = 0x3179; }},
    });
}

TEST(image_faults, of_unwind_records) {
    expect_refused({
        {"covers addresses that are not code", [](example& e) { e.records.code.bytes = 0x201; }},
        {"covers addresses that are not code", [](example& e) { e.records.code.offset = 0x2000; }},
        {"covers addresses that are not code",  // A terabyte, if libgcc believed it.
         [](example& e) {
             e.records.addresses = 0x1c;
             e.records.code.bytes = std::int64_t{1} << 40;
         }},
        {"covers addresses that are not code",
         [](example& e) {
             e.records.addresses = 0x1c;
             e.records.code = {-(std::int64_t{1} << 39), std::int64_t{1} << 40};
         }},
        {"covers addresses that are not code",
         [](example& e) {
             e.records.addresses = 0x1c;
             e.records.code = {INT64_MIN, INT64_MAX};
         }},
        {"personality", [](example& e) { e.records.personality_word = 0x3008; }},
        {"personality", [](example& e) { e.records.personality_word = 0x3018; }},
        {"personality", [](example& e) { e.contents.relocations[2].addend = 8; }},
        {"personality",  // The image's own function.
         [](example& e) {
             e.records.personality = 0x1b;
             e.records.personality_word = 0;
         }},
        {"personality", [](example& e) { e.records.personality = 0x00; }},
        {"personality", [](example& e) { e.records.personality = 0x50; }},
        {"table outside", [](example& e) { e.records.table = 0x2040; }},
        {"table outside", [](example& e) { e.records.table = -0x10; }},
        {"not relative", [](example& e) { e.records.addresses = 0x00; }},
        {"not relative", [](example& e) { e.records.addresses = 0x9b; }},
        {"not relative", [](example& e) { e.records.tables = 0x50; }},
        {"unknown version", [](example& e) { e.records.version = 2; }},
        {"no augmentation data", [](example& e) { e.records.letters = "PLR"; }},
        {"no augmentation data", [](example& e) { e.records.letters = ""; }},
        {"unknown augmentation", [](example& e) { e.records.letters = "zPLRx"; }},
        {"is truncated", [](example& e) { e.records.letters = "zPL"; }},
        {"is truncated", [](example& e) { e.records.augmentation_bytes = 200; }},
        {"is truncated", [](example& e) { e.records.augmentation_bytes = 3; }},
        {"is truncated", [](example& e) { e.records.range_augmentation_bytes = 200; }},
        {"does not precede it", [](example& e) { e.records.back_by = 4; }},
        {"does not precede it", [](example& e) { e.records.back_by = -0x1000; }},
        {"too long", [](example& e) { e.records.longer = 0x1000; }},
        {"too long", [](example& e) { e.records.longer = 0xf0000000; }},
        {"no terminator", [](example& e) { e.records.end = false; }},
        {"are in a writable segment",
         [](example& e) { e.records.rights = image_rights::read_write; }},
    });
}

TEST(image_faults, one_changed_byte_of_unwind_records_is_refused_or_means_as_little) {
    example right;
    const std::vector<std::uint8_t> records = right.records.bytes();
    for (std::size_t at = 0; at < records.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            example changed;
            changed.records.changed = {at, static_cast<std::uint8_t>(value)};
            (void)changed.why();  // Either result is fine; sanitizers check.
        }
    }
}

}  // namespace
}  // namespace amalgam

#include "inject/link/linked_image.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "inject/image/compiled_image.hpp"
#include "inject/image/contents.hpp"
#include "tasks/stacks/sanitizer.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

code_image image_of(const std::string& source, const std::string& ending = ".cpp") {
    return compiled_image(source, {.path = ending, .name = "made"});
}

using entry = void (*)(void*, std::size_t, void*);

/// Links it, and calls its main with a number that it may change.
long result_of(const detail::linked_image& linked, long input = 0) {
    const auto main = reinterpret_cast<entry>(linked.find("made_main"));
    EXPECT_NE(main, nullptr);
    long value = input;
    main(nullptr, 0, &value);
    return value;
}
long result_of(const code_image& image, long input = 0) {
    const detail::linked_image linked(image, detail::runtime_symbol);
    return result_of(linked, input);
}

const std::string head = R"(
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#define MAIN extern "C" void made_main(void* payload, size_t size, void* target)
)";

TEST(linked_image, runs_c) {
    EXPECT_EQ(result_of(image_of("#include <stddef.h>\n"
                                 "static const char* const names[] = {\"a\", \"bc\"};\n"
                                 "#include <string.h>\n"
                                 "void made_main(void* p, size_t n, void* target) {\n"
                                 "    *(long*)target += (long)strlen(names[1]);\n"
                                 "}\n",
                                 ".c"),
                        40),
              42);
}

TEST(linked_image, runs_what_cpp_needs_most) {
    const code_image image = image_of(head + R"(
namespace {
struct shape { virtual ~shape() = default; virtual long area() const = 0; };
struct square : shape { long side; explicit square(long s) : side(s) {} long area() const override { return side * side; } };
struct refused : std::runtime_error { using runtime_error::runtime_error; };
std::map<std::string, int>* table;
struct begins { begins() { table = new std::map<std::string, int>{{"six", 6}}; } ~begins() { delete table; } } whole;
thread_local long calls = 3;
long fails(long n) { if (n > 1) throw refused("too much"); return n; }
}
MAIN {
    long& result = *static_cast<long*>(target);
    const shape& one = square(table->at("six"));
    result += one.area();                                   // 36
    try { fails(result); } catch (const std::exception& why) { result += std::strlen(why.what()); }  // 8
    try { throw 7; } catch (int seven) { result += seven; }
    std::vector<long> many(1000, 1);
    for (long each : many) result += each;
    static const std::string once = "once";
    result += static_cast<long>(once.size()) + ++calls;
    char text[32];
    std::snprintf(text, sizeof text, "%d", 9);
    result += text[0] - '0';
}
)");
    detail::linked_image linked(image, detail::runtime_symbol);
    const long expected = 36 + 8 + 7 + 1000 + 4 + 9;
    EXPECT_EQ(result_of(linked), expected + 4);
    EXPECT_EQ(result_of(linked), expected + 5) << "it keeps its thread-local data";
    std::thread([&] { EXPECT_EQ(result_of(linked), expected + 4); }).join();
}

TEST(linked_image, what_it_throws_can_be_caught_here) {
    const code_image image = image_of(head + "MAIN { throw std::out_of_range(\"far away\"); }");
    const detail::linked_image linked(image, detail::runtime_symbol);
    try {
        (void)result_of(linked);
        FAIL();
    } catch (const std::out_of_range& why) {
        EXPECT_STREQ(why.what(), "far away");
    }
}

std::atomic<int> told{0};
extern "C" void tell_for_test(int what) {
    told = told * 10 + what;
}
void* with_tell(std::string_view name) {
    if (name == "tell_for_test") return reinterpret_cast<void*>(&tell_for_test);
    return detail::runtime_symbol(name);
}

TEST(linked_image, its_objects_begin_and_end_with_it) {
    const code_image image = image_of(head + R"(
extern "C" void tell_for_test(int what);
struct tells { int n; explicit tells(int i) : n(i) { tell_for_test(n); } ~tells() { tell_for_test(n + 4); } };
static tells one(1), two(2);
__attribute__((destructor)) static void last() { tell_for_test(9); }
MAIN { static tells three(3); }
)");
    told = 0;
    {
        const detail::linked_image linked(image, with_tell);
        EXPECT_EQ(told, 12);
        (void)result_of(linked);
        (void)result_of(linked);
        EXPECT_EQ(told, 123);
    }
    EXPECT_EQ(told, 1239765);
}

TEST(linked_image, uses_what_the_process_exports_and_says_what_is_missing) {
    const std::string source = head +
                               "extern \"C\" void tell_for_test(int what);\n"
                               "extern \"C\" void nobody_has_this();\n"
                               "MAIN { tell_for_test(5); nobody_has_this(); }";
    try {
        const detail::linked_image linked(image_of(source), with_tell);
        FAIL() << "it was linked";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::not_found);
        EXPECT_STREQ(
            why.what(),
            "the image made needs symbols that this process does not export: nobody_has_this");
    }
}

// On AArch64 what they compare with is a variable of the loader.
TEST(linked_image, code_with_stack_protectors_is_linked) {
    const code_image image =
        compiled_image(head +
                           "MAIN { char text[64]; *static_cast<long*>(target) +="
                           " std::snprintf(text, sizeof text, \"%d\", 12); }",
                       {.path = ".cpp", .name = "made", .flags = {"-fstack-protector-all"}});
    EXPECT_EQ(result_of(image, 40), 42);
}

// Which GCC chooses at run time on AArch64, by what the C library says of the processor.
TEST(linked_image, atomic_operations_work) {
    const code_image image = image_of("#include <atomic>\n" + head +
                                      "static std::atomic<long> sum{40};\n"
                                      "MAIN { *static_cast<long*>(target) = ++sum; }");
    const detail::linked_image linked(image, detail::runtime_symbol);
    EXPECT_EQ(result_of(linked), 41);
    EXPECT_EQ(result_of(linked), 42);
}

#if defined(__aarch64__)
TEST(linked_image, other_threads_discard_what_they_fetched_from_its_memory_before) {
    constexpr int get_registrations = 1 << 9;
    const detail::linked_image linked(image_of(head + "MAIN {}"), detail::runtime_symbol);
    const long registered = ::syscall(SYS_membarrier, get_registrations, 0, 0);
    if (registered == -1) GTEST_SKIP() << "this kernel does not tell, which Linux 6.3 does";
    EXPECT_TRUE(registered & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE);
}
#endif

TEST(linked_image, many_come_and_go_and_each_has_data_of_its_own) {
    const code_image image = image_of(head +
                                      "static long calls; thread_local long mine = 10;\n"
                                      "MAIN { *static_cast<long*>(target) = ++calls + ++mine; }");
    for (int i = 0; i < 1000; ++i) {
        const detail::linked_image one(image, detail::runtime_symbol);
        const detail::linked_image other(image, detail::runtime_symbol);
        EXPECT_EQ(result_of(one), 12);
        EXPECT_EQ(result_of(one), 14);
        EXPECT_EQ(result_of(other), 12);
    }
}

TEST(linked_image, threads_leave_none_of_its_data_behind) {
    const code_image image =
        image_of(head +
                 "thread_local char mine[100000];\n"
                 "MAIN { mine[0] = 1; *static_cast<long*>(target) += mine[0]; }");
    const detail::linked_image linked(image, detail::runtime_symbol);
    const auto run_in_threads = [&] {
        for (int i = 0; i < 200; ++i)
            std::thread([&] { EXPECT_EQ(result_of(linked), 1); }).join();
    };
    run_in_threads();
    if (detail::sanitized) return;  // Sanitizers delay frees to detect double ones.
    const auto before = ::mallinfo2();
    run_in_threads();
    const auto after = ::mallinfo2();
    EXPECT_LT(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 1'000'000);
}

TEST(linked_image, no_memory_can_be_written_and_run) {
    const detail::linked_image linked(image_of(head + "static int n; MAIN { ++n; }"),
                                      detail::runtime_symbol);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        EXPECT_EQ(line.find("rwx"), std::string::npos) << line;
}

std::string why_not(const std::string& source) {
    try {
        (void)image_of(source);
    } catch (const error& why) {
        return why.what();
    }
    return "it can";
}

TEST(build_image, what_cannot_travel_is_refused_with_a_reason) {
    EXPECT_NE(why_not(head + "thread_local std::string last; MAIN { last += 'x'; }")
                  .find("thread_local object with a destructor"),
              std::string::npos);
    EXPECT_NE(
        why_not(head + "extern thread_local int theirs; MAIN { ++theirs; }").find("cannot access"),
        std::string::npos);
    const std::string loader = "it has indirect functions, which a loader would resolve";
    EXPECT_NE(why_not(head + R"(
extern "C" long first() { return 1; }
extern "C" long (*choose())() { return first; }
__attribute__((ifunc("choose"))) long chosen();
MAIN { *static_cast<long*>(target) = chosen(); }
)")
                  .find(loader),
              std::string::npos);
    EXPECT_NE(why_not(head + "#include <cstdlib>\nMAIN { std::atexit([] {}); }").find("atexit()"),
              std::string::npos);
    try {
        (void)compiled_image(
            head + "MAIN { long& sum = *static_cast<long*>(target); sum += 1l << sum; }",
            {.path = ".cpp", .name = "made", .flags = {"-fsanitize=undefined"}});
        FAIL() << "its functions are nowhere";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::unsupported);
        EXPECT_NE(std::string(why.what()).find("-fsanitize=undefined"), std::string::npos);
    }
    try {
        (void)compiled_image(
            head + "thread_local long n; MAIN { ++n; }",
            {.path = ".cpp",
             .name = "made",
             .flags = {this_architecture() == architecture::x86_64 ? "-mtls-dialect=gnu2"
                                                                   : "-mtls-dialect=desc"}});
        FAIL() << "nobody would resolve its descriptors";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::unsupported);
        EXPECT_NE(std::string(why.what()).find("TLS descriptors"), std::string::npos);
    }
    EXPECT_NE(why_not("int other() { return 1; }").find("has no function made_main"),
              std::string::npos);
    EXPECT_THROW((void)build_image({.path = "/nowhere/at.cpp"}), error);
}

TEST(build_image, clang_makes_images_too) {
    if (std::system("clang++ --version >/dev/null 2>&1") != 0)
        GTEST_SKIP() << "there is no clang++";
    const code_image image =
        compiled_image(head + R"(
MAIN {
    try { throw std::runtime_error(std::string("seven")); }
    catch (const std::exception& why) { *static_cast<long*>(target) += std::strlen(why.what()); }
}
)",
                       {.path = ".cpp", .name = "made", .compiler = "clang++"});
    EXPECT_EQ(result_of(image, 37), 42);
}

TEST(code_image, a_signature_says_who_made_it_and_changes_nothing_else) {
    const code_image image = image_of(head + "MAIN {}");
    EXPECT_FALSE(image.signer());
    EXPECT_FALSE(image.verify());
    const signing_key key = signing_key::generate(), other = signing_key::generate();
    const code_image made = image.signed_by(other).signed_by(key);
    EXPECT_EQ(made.signer(), key.signer());
    EXPECT_EQ(made.hash(), image.hash());
    EXPECT_TRUE(made.verify());
    for (std::size_t back : {1, 64, 70, 96}) {  // In the signature, and in the signer.
        std::vector<std::byte> changed(made.bytes().begin(), made.bytes().end());
        changed[changed.size() - back] ^= std::byte{1};
        const auto read = code_image::parse(changed);
        ASSERT_TRUE(read);
        EXPECT_FALSE(read->verify()) << back;
    }
    EXPECT_EQ(parse_signer_key(to_text(key.signer())), key.signer());
    for (const char* bad : {"", "12", "zz"})
        EXPECT_THROW((void)parse_signer_key(bad), error);
}

TEST(code_image, keys_and_images_are_kept_in_files) {
    const temp_folder own;
    const std::string key_path = own.with("a.key"), image_path = own.with("a.image");
    const signing_key key = signing_key::generate();
    key.save(key_path);
    EXPECT_THROW(key.save(key_path), error) << "nothing is written over";
    EXPECT_EQ(signing_key::load(key_path).signer(), key.signer());
    const code_image image = image_of(head + "MAIN {}").signed_by(key);
    image.save(image_path);
    EXPECT_TRUE(code_image::load(image_path).verify());
    EXPECT_THROW((void)signing_key::load(image_path), error);
    EXPECT_THROW((void)code_image::load(key_path), error);
}

/// Claims another architecture: its code is unchanged, but nothing here would run it.
code_image for_another_processor(const code_image& image) {
    detail::image_contents contents = image.contents();
    contents.architecture =
        this_architecture() == architecture::x86_64 ? architecture::aarch64 : architecture::x86_64;
    return *code_image::parse(detail::image_contents::to_bytes(contents));
}

TEST(code_image, one_for_several_processors_is_taken_for_the_one_that_it_is_at) {
    const code_image mine = image_of(head + "MAIN { *static_cast<long*>(target) = 5; }");
    const code_image other = for_another_processor(mine);
    EXPECT_THROW((void)result_of(other), error);
    for (const auto& parts : {std::vector{mine, other}, std::vector{other, mine}}) {
        const code_image both = code_image::joined(parts);
        EXPECT_EQ(both.architecture(), this_architecture());
        EXPECT_EQ(both.architectures().size(), 2u);
        EXPECT_NE(both.hash(), mine.hash());
        EXPECT_EQ(result_of(both), 5);
        const code_image made = both.signed_by(signing_key::generate());
        EXPECT_TRUE(made.verify());
        EXPECT_EQ(result_of(made), 5);
        EXPECT_THROW((void)code_image::joined({both, mine}), error);
    }
    for (const auto& bad : {std::vector<code_image>{}, std::vector{mine, mine}})
        EXPECT_THROW((void)code_image::joined(bad), error);
}

TEST(code_image, says_what_it_is) {
    const code_image image = image_of(head + "MAIN { std::puts(\"hello\"); }");
    EXPECT_EQ(image.name(), "made");
    EXPECT_EQ(image.architecture(), this_architecture());
    EXPECT_EQ(image.imports(), std::vector<std::string_view>{"puts"});
    EXPECT_EQ(image.exports(), std::vector<std::string_view>{"made_main"});
    const auto same = code_image::parse({image.bytes().begin(), image.bytes().end()});
    ASSERT_TRUE(same);
    EXPECT_EQ(same->hash(), image.hash());
}

}  // namespace
}  // namespace amalgam

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stop_token>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "emulated.hpp"
#include "inject/link/linked_image.hpp"
#include "inject/source/injector_testing.hpp"
#include "tasks/stacks/sanitizer.hpp"

struct dwarf_eh_bases {
    void* text;
    void* data;
    void* function;
};
extern "C" const void* _Unwind_Find_FDE(void* code, dwarf_eh_bases* bases);

namespace amalgam {
namespace {

/// Whether the unwinder knows that address.
bool unwinds(std::uintptr_t code) {
    dwarf_eh_bases bases{};
    return ::_Unwind_Find_FDE(reinterpret_cast<void*>(code), &bases) != nullptr;
}

/// Running child processes of this one.
std::size_t children() {
    std::size_t all = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc")) {
        std::ifstream file(each.path() / "stat");
        std::string text;
        if (!std::getline(file, text) || text.find(')') == text.npos) continue;
        std::istringstream behind_name(text.substr(text.rfind(')') + 1));
        char state = 0;
        pid_t parent = 0;
        behind_name >> state >> parent;
        all += parent == ::getpid() && state != 'Z';
    }
    return all;
}

void wait_for_children(std::size_t expected) {
    poll_until([&] { return children() == expected; });
    EXPECT_EQ(children(), expected);
}

class confined_test : public injector_test {
protected:
    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << qemu_has_no_seccomp;
    }
};

TEST_F(confined_test, confined_code_has_a_copy_of_everything_and_changes_nothing) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true}}));
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    EXPECT_EQ(text_of(message.call(there)), "6");
    EXPECT_EQ(text_of(message.call(there)), "6");
    EXPECT_EQ(sum_now(), 0);
    for (const std::size_t bytes : {0, 100000, 3000000}) {
        const injected_function same =
            inject.add(compiled("same", "MAIN(same) { amalgam_inject_result(payload, size); }"));
        EXPECT_EQ(same.create(bytes).call(there).size(), bytes);
    }
}

TEST_F(confined_test, what_confined_code_does_costs_the_target_nothing) {
    const injection_target target(
        at_target, open_to_all({.confined = {.on = true, .time = 300ms, .result_bytes = 1000}}));
    const auto end_of = [&](const std::string& name, const std::string& what) {
        const injected_function function =
            inject.add(compiled(name,
                                "#include <fcntl.h>\n#include <sys/socket.h>\n#include <unistd.h>\n"
                                "MAIN(" +
                                    name + ") { " + what + " }"));
        const error why = error_of([&] { (void)function.create(1).call(there); });
        return std::string(name_of(why.code().code)) + ": " + why.what();
    };
    EXPECT_EQ(end_of("crashes", "*static_cast<volatile int*>(nullptr) = 1;"),
              "handler_failed: it was ended by signal 11 (Segmentation fault)");
    EXPECT_EQ(end_of("loops", "for (volatile long i = 0;; ++i) {}"),
              "timed_out: it took longer than this target allows");
    EXPECT_EQ(end_of("much", "static char all[2000]; amalgam_inject_result(all, 2000);"),
              "too_large: its result is longer than this target accepts");
    EXPECT_EQ(end_of("leaves", "_exit(7);"), "handler_failed: its process ended with 7");
#if !defined(AMALGAM_ASAN)
    // AddressSanitizer makes system calls for stack bounds on each throw.
    EXPECT_EQ(end_of("throws", "throw std::runtime_error(\"enough\");"), "handler_failed: enough");
    EXPECT_EQ(end_of("opens",
                     "if (open(\"/etc/passwd\", O_RDONLY) < 0) throw "
                     "std::runtime_error(\"no file\");"),
              "handler_failed: no file");
    EXPECT_EQ(end_of("talks",
                     "if (socket(AF_INET, SOCK_STREAM, 0) < 0) throw "
                     "std::runtime_error(\"no socket\");"),
              "handler_failed: no socket");
#endif
    const injected_function fine = inject.add(adder());
    EXPECT_EQ(text_of(fine.create(as_bytes_of(ones)).call(there)), "6");
}

TEST_F(confined_test, confined_code_that_aborts_is_told_so_and_signals_nobody_else) {
    injection_options options = open_to_all({.confined = {.on = true, .time = 60s}});
    options.allows.denied_imports.clear();  // System calls are refused nevertheless.
    const injection_target target(at_target, options);
    const auto end_of = [&](const code_image& image) {
        const error why = error_of([&] { (void)inject.add(image).create(1).call(there); });
        return std::string(why.what());
    };
    EXPECT_EQ(end_of(compiled("aborts", "#include <cstdlib>\nMAIN(aborts) { abort(); }")),
              "it was ended by signal 6 (Aborted)");
    sum = ::getpid();
    EXPECT_EQ(end_of(compiled("signals", R"(
#include <csignal>
#include <unistd.h>
MAIN(signals) {
    const auto parent = static_cast<pid_t>(*static_cast<long*>(target));
    const bool any = tgkill(parent, parent, SIGABRT) == 0 ||
        tgkill(getpid(), parent, SIGABRT) == 0 || kill(parent, 0) == 0 ||
        kill(getpid(), SIGABRT) == 0 || raise(SIGKILL) == 0;
    _exit(any ? 1 : 8);
}
)")),
              "its process ended with 8");
}

TEST_F(confined_test, confined_code_has_no_pages_that_are_kept_from_children) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    auto* const pages = static_cast<char*>(
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    const std::string open = "for everybody", secret = "a secret word";
    std::memcpy(pages, open.data(), open.size());
    std::memcpy(pages + page, secret.data(), secret.size());
    ASSERT_EQ(::madvise(pages + page, page, MADV_DONTFORK), 0);
    injection_options options = open_to_all({.confined = {.on = true, .time = 60s}});
    const injected_function reads =
        inject.add(compiled("reads", "MAIN(reads) { amalgam_inject_result(target, 13); }"));
    options.target_args = pages;
    {
        const injection_target target(at_target, options);
        EXPECT_EQ(text_of(reads.create(1).call(there)), open);
    }
    options.target_args = pages + page;
    const injection_target target(at_target, options);
    std::string got;
    try {
        got = text_of(reads.create(1).call(there));  // Fresh memory may be mapped there by now.
    } catch (const error& why) {
        got = why.what();
    }
    EXPECT_EQ(got.find("secret"), got.npos) << got;
    EXPECT_EQ(std::string(pages + page), secret);
    ::munmap(pages, 2 * page);
}

TEST_F(confined_test, static_objects_of_confined_code_are_confined_too) {
    injection_options options = open_to_all({.confined = {.on = true, .time = 300ms}});
    static std::atomic<int> told{0};
    options.exports["tell_for_test"] = reinterpret_cast<void*>(+[] { return ++told; });
    const injection_target target(at_target, options);
    const injected_function loud = inject.add(compiled("loud", R"(
extern "C" int tell_for_test();
struct tells { int n = tell_for_test(); ~tells() { tell_for_test(); } };
static tells one, two;
MAIN(loud) { amalgam_inject_result(&two.n, sizeof(two.n)); }
)"));
    for (int i = 0; i < 2; ++i)
        EXPECT_EQ(loud.create(1).call(there).at(0), std::byte{2});
    const injected_function bad =
        inject.add(compiled("bad",
                            "static int fails() { __builtin_trap(); }\nstatic int n = fails();\n"
                            "MAIN(bad) { ++n; }"));
    EXPECT_EQ(error_of([&] { (void)bad.create(1).call(there); }).code(), errc::handler_failed);
    EXPECT_EQ(told, 0);
}

#if !defined(AMALGAM_ASAN)  // See above.
TEST_F(confined_test, confined_code_has_nobody_to_ask) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true}}));
    at_source.define("never", [](const_bytes) { return std::vector<std::byte>(9); });
    const injected_function asks = inject.add(compiled("asks", R"(
extern "C" long amalgam_inject_call(const char*, const char*, const void*, std::size_t, void*, std::size_t);
extern "C" long amalgam_inject_onward(const char*, const void*, std::size_t, void*, std::size_t);
MAIN(asks) {
    const long all[] = {amalgam_inject_call(nullptr, "never", payload, size, payload, size),
                        amalgam_inject_onward("shm://nobody", payload, size, payload, size)};
    amalgam_inject_result(all, sizeof(all));
}
)"));
    EXPECT_EQ(asks.create(1).call(there), std::vector<std::byte>(16, std::byte{0xff}));
}
#endif

TEST_F(confined_test, confined_code_is_ended_when_its_caller_waits_no_more) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 1h}}));
    const injected_function loops =
        inject.add(compiled("loops", "MAIN(loops) { for (volatile long i = 0;; ++i) {} }"));
    EXPECT_EQ(error_of([&] { (void)loops.create(1).call(there, 100ms); }).code(), errc::timed_out);
    poll_until([&] { return running() == 0; });
    EXPECT_EQ(running(), 0u);
}

TEST_F(confined_test, a_confined_run_that_is_canceled_is_ended) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 1h}}));
    const injected_function loops =
        inject.add(compiled("loops", "MAIN(loops) { for (volatile long i = 0;; ++i) {} }"));
    auto later = loops.create(1).start(there);
    wait_for_children(1);
    later.cancel();
    EXPECT_EQ(error_of([&] { (void)later.get(); }).code(), errc::canceled);
    wait_for_children(0);
}

TEST_F(confined_test, so_many_runs_are_confined_at_once_and_others_wait) {
    const injection_target target(
        at_target, open_to_all({.confined = {.on = true, .time = 1h, .at_once = 2}}));
    const injected_function loops =
        inject.add(compiled("loops", "MAIN(loops) { for (volatile long i = 0;; ++i) {} }"));
    (void)inject.add(adder()).create(as_bytes_of(ones)).call(there);
    std::vector<future<std::vector<std::byte>>> all;
    for (int i = 0; i < 5; ++i)
        all.push_back(loops.create(1).start(there));
    poll_until([&] { return running() >= 5; });
    wait_for_children(2);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(children(), 2u);
        std::this_thread::sleep_for(1ms);
    }
    for (auto& each : all)
        each.cancel();
    poll_until([&] { return running() == 0; });
    EXPECT_EQ(running(), 0u);
    EXPECT_EQ(children(), 0u);
}

TEST_F(confined_test, confined_code_gets_so_much_memory_and_no_more) {
    const injection_target target(
        at_target, open_to_all({.confined = {.on = true, .time = 60s, .memory_bytes = 64 << 20}}));
    const injected_function touches = inject.add(compiled("touches", R"(
#include <sys/mman.h>
MAIN(touches) {
    int got = 0;
    for (int i = 0; i < 32; ++i) {
        void* const all = mmap(nullptr, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) continue;
        std::memset(all, 1, 16 << 20);
        ++got;
    }
    const std::string text = std::to_string(got);
    amalgam_inject_result(text.data(), text.size());
}
)"));
    const int got = std::stoi(text_of(touches.create(1).call(there)));
    EXPECT_GE(got, 2);
    EXPECT_LE(got, 4);
}

TEST_F(confined_test, what_unwinds_knows_nothing_of_confined_code) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 60s}}));
    const injected_function where = inject.add(compiled("where", R"(
MAIN(where) {
    const void* here = reinterpret_cast<void*>(&where_main);
    amalgam_inject_result(&here, sizeof(here));
}
)"));
    const std::vector<std::byte> result = where.create(1).call(there);
    std::uintptr_t code = 0;
    ASSERT_EQ(result.size(), sizeof(code));
    std::memcpy(&code, result.data(), sizeof(code));
    EXPECT_FALSE(unwinds(code + 1));
    {  // Unconfined, it is registered.
        engine open("shm://");
        const injection_target other(open, open_to_all());
        const auto again = where.create(1).call(at_source.lookup(open.address()));
        std::memcpy(&code, again.data(), sizeof(code));
        EXPECT_TRUE(unwinds(code + 1));
    }
    EXPECT_FALSE(unwinds(code + 1));
}

TEST_F(confined_test, confined_runs_begin_while_threads_of_the_target_throw) {
    if (detail::sanitized)
        GTEST_SKIP() << "a child that is forked while others throw waits for a sanitizer's locks";
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 60s}}));
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    // While one such image exists, each throw takes a lock of the runtime.
    const detail::linked_image registered(compiled("plain", "MAIN(plain) { throw 1; }"),
                                          detail::runtime_symbol);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i)
        threads.emplace_back([](const std::stop_token& end) {
            while (!end.stop_requested()) {
                try {
                    throw 1;
                } catch (int) {
                }
            }
        });
    for (int i = 0; i < 400; ++i)
        ASSERT_EQ(text_of(message.call(there)), "6") << i;
}

TEST_F(confined_test, a_target_with_very_many_mappings_confines_all_the_same) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    constexpr std::size_t mappings = 50'000;  // Below the kernel's limit per process.
    auto* const all = static_cast<std::byte*>(
        ::mmap(nullptr, mappings * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(all, MAP_FAILED);
    for (std::size_t i = 0; i < mappings; i += 2)
        ASSERT_EQ(::mprotect(all + i * page, page, PROT_READ | PROT_WRITE), 0);
    // The last mapping is shared, and must be removed.
    int& shared = *static_cast<int*>(
        ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    injection_options options = open_to_all({.confined = {.on = true, .time = 60s}});
    options.target_args = &shared;
    const injection_target target(at_target, options);
    const error why = error_of([&] {
        (void)inject.add(compiled("writes", "MAIN(writes) { *static_cast<int*>(target) = 1; }"))
            .create(1)
            .call(there);
    });
    EXPECT_STREQ(why.what(), "it was ended by signal 11 (Segmentation fault)");
    EXPECT_EQ(shared, 0);
    EXPECT_EQ(
        text_of(inject.add(compiled("fine", "MAIN(fine) { amalgam_inject_result(\"ok\", 2); }"))
                    .create(1)
                    .call(there)),
        "ok");
    ::munmap(&shared, page);
    ::munmap(all, mappings * page);
}

TEST_F(injector_test, code_runs_nowhere_if_the_system_cannot_confine_it) {
    if (!is_emulated()) GTEST_SKIP() << "this system can";
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 60s}}));
    const error why =
        error_of([&] { (void)inject.add(adder()).create(as_bytes_of(ones)).call(there); });
    EXPECT_EQ(why.code(), errc::unsupported);
    EXPECT_STREQ(why.what(),
                 "this system cannot confine it, expected Linux with seccomp and /proc");
}

TEST_F(injector_test, confined_code_cannot_run_inline) {
    EXPECT_EQ(error_of([&] {
                  const injection_target target(
                      at_target, open_to_all({.run = handler::inline_, .confined = {.on = true}}));
              }).code(),
              errc::invalid);
}

}  // namespace
}  // namespace amalgam

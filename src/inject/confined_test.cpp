#include "inject/injector_testing.hpp"
#include "tasks/sanitizer.hpp"

namespace amalgam {
namespace {

TEST_F(injector_test, confined_code_has_a_copy_of_everything_and_changes_nothing) {
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

TEST_F(injector_test, what_confined_code_does_costs_the_target_nothing) {
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
              "timed_out: it took longer than this target lets it");
    EXPECT_EQ(end_of("much", "static char all[2000]; amalgam_inject_result(all, 2000);"),
              "too_large: its result is longer than this target takes");
    EXPECT_EQ(end_of("leaves", "_exit(7);"), "handler_failed: its process ended with 7");
#if !defined(AMALGAM_ASAN)
    // AddressSanitizer asks the system about stacks whenever something is thrown.
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

TEST_F(injector_test, static_objects_of_confined_code_are_confined_too) {
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

#if !defined(AMALGAM_ASAN)  // As above.
TEST_F(injector_test, confined_code_has_nobody_to_ask) {
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

TEST_F(injector_test, confined_code_is_ended_when_its_caller_waits_no_more) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 1h}}));
    const injected_function loops =
        inject.add(compiled("loops", "MAIN(loops) { for (volatile long i = 0;; ++i) {} }"));
    EXPECT_EQ(error_of([&] { (void)loops.create(1).call(there, 100ms); }).code(), errc::timed_out);
    for (int i = 0; i < 1000 && at_target.counters().get("rpc.running").value() != 0; ++i)
        std::this_thread::sleep_for(5ms);
    EXPECT_EQ(at_target.counters().get("rpc.running").value(), 0u);
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

// The side that makes and sends messages: limits of its functions, and its promises.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "emulated.hpp"
#include "inject/source/injector_testing.hpp"
#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

/// Its exception type is unloaded with the image.
const std::string own_failure = R"(
struct own : std::exception { const char* what() const noexcept override { return "out of paper"; } };
)";

TEST_F(injector_test, what_payload_functions_throw_is_told_after_their_image_is_gone) {
    for (const char* what : {"own()", "7"}) {
        const std::string fails = std::string("{ throw ") + what + "; }\n";
        const std::string said = what[0] == 'o'
                                     ? "out of paper"
                                     : "it threw an exception not derived from std::exception";
        const auto create = [&](const std::string& most, const std::string& init) {
            return error_of([&] {
                (void)inject
                    .add(compiled("fails", own_failure +
                                               "extern \"C\" std::size_t "
                                               "fails_payload_get_max_size(void*, std::size_t) " +
                                               most +
                                               "extern \"C\" int fails_payload_init(void*, "
                                               "std::size_t, void*, std::size_t) " +
                                               init + "MAIN(fails) {}\n"))
                    .create(as_bytes_of(ones));
            });
        };
        const error of_size = create(fails, "{ return 0; }\n");
        EXPECT_EQ(of_size.code(), errc::handler_failed);
        EXPECT_EQ(of_size.what(), "payload_get_max_size of the image fails failed: " + said);
        const error of_init = create("{ return 1; }\n", fails);
        EXPECT_EQ(of_init.code(), errc::handler_failed);
        EXPECT_EQ(of_init.what(), "payload_init of the image fails failed: " + said);
    }
}

TEST_F(injector_test, what_static_objects_throw_at_the_source_is_told_after_their_image_is_gone) {
    for (const char* what : {"own()", "7"}) {
        const error why = error_of([&] {
            (void)inject.add(compiled("never", own_failure + "static int fails() { throw " + what +
                                                   R"(; }
static int n = fails();
extern "C" std::size_t never_payload_get_max_size(void*, std::size_t) { return n; }
extern "C" int never_payload_init(void*, std::size_t, void*, std::size_t) { return 0; }
MAIN(never) {}
)"));
        });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("a static object of the image never failed"),
                  std::string::npos)
            << why.what();
    }
}

TEST_F(injector_test, a_message_for_which_there_is_no_memory_is_refused) {
    const injected_function function = inject.add(adder());
    for (std::uint64_t n = 1;; ++n) {
        std::optional<error> why;
        bool struck = false;
        {
            const memory::failing next(n);
            try {
                (void)function.create(as_bytes_of(ones));
            } catch (const error& failed) {
                why.emplace(failed);
            }
            struck = memory::failing::struck();
        }
        if (!struck) break;
        ASSERT_TRUE(why) << n;
        EXPECT_EQ(why->code(), errc::no_memory) << why->what();
    }
    EXPECT_EQ(function.create(as_bytes_of(ones)).payload().size(), 6u);
}

TEST_F(injector_test, a_payload_longer_than_memory_can_be_is_refused) {
    const injected_function function = inject.add(adder());
    for (const std::size_t bytes : {std::size_t(-1), std::size_t(-8), std::size_t(1) << 63})
        EXPECT_EQ(error_of([&] { (void)function.create(bytes); }).code(), errc::no_memory);
}

TEST_F(injector_test, what_is_none_is_refused_with_a_sentence) {
    for (const auto& use : std::initializer_list<std::function<void()>>{
             [&] { (void)injection().call(there); }, [&] { (void)injection().start(there); },
             [&] { injection().post(there); }, [&] { (void)injected_function().create(1); },
             [&] { (void)injected_function().create(as_bytes_of(ones)); },
             [&] { injected_procedure<int()>{injected_function()}; },
             [&] { (void)inject.add(code_image()); },
             [&] {
                 (void)code_image::joined({code_image(), code_image()});
             }})
        EXPECT_EQ(error_of(use).code(), errc::invalid);
}

TEST_F(injector_test, what_is_none_has_no_payload_and_no_image) {
    injection message = inject.add(adder()).create(as_bytes_of(ones));
    const injection moved = std::move(message);
    injection never;
    for (injection* const none : {&message, &never}) {
        EXPECT_TRUE(none->payload().empty());
        EXPECT_TRUE(std::as_const(*none).payload().empty());
    }
    EXPECT_EQ(moved.payload().size(), 6u);
    injected_function function = inject.add(adder());
    const injected_function other = std::move(function);
    EXPECT_FALSE(function.image());
    EXPECT_FALSE(injected_function().image());
    EXPECT_EQ(other.image().name(), "adder");
}

TEST_F(injector_test, an_image_that_wants_the_largest_payload_of_all_is_refused_with_a_sentence) {
    const injected_function endless = inject.add(compiled("endless", R"(
extern "C" std::size_t endless_payload_get_max_size(void*, std::size_t) { return std::size_t(-1); }
extern "C" int endless_payload_init(void*, std::size_t, void*, std::size_t) { return 0; }
MAIN(endless) {}
)"));
    const error why = error_of([&] { (void)endless.create(as_bytes_of(ones)); });
    EXPECT_EQ(why.code(), errc::no_memory);
    EXPECT_STREQ(why.what(), "cannot allocate a payload of 18446744073709551615 bytes");
}

TEST(code_image, that_is_none_has_nothing) {
    const code_image none;
    EXPECT_TRUE(none.name().empty() && none.bytes().empty() && none.imports().empty() &&
                none.exports().empty() && none.architectures().empty());
    EXPECT_EQ(none.hash(), image_hash{});
    EXPECT_EQ(none.architecture(), this_architecture());
    EXPECT_GE(none.payload_alignment(), 1u);
    EXPECT_FALSE(none.signer() || none.verify());
    EXPECT_EQ(error_of([&] { none.save(testing::TempDir() + "none.image"); }).code(),
              errc::invalid);
    EXPECT_EQ(error_of([&] { (void)none.signed_by(signing_key::generate()); }).code(),
              errc::invalid);
}

TEST_F(injector_test, what_it_throws_may_have_no_text) {
    const std::string textless =
        "#include <exception>\n"
        "struct textless : std::exception {\n"
        "    const char* what() const noexcept override { return nullptr; }\n};\n";
    const injected_function thrower = inject.add(compiled(
        "textless_thrower",
        textless + "extern \"C\" std::size_t textless_thrower_payload_get_max_size(void*, "
                   "std::size_t n) { if (n == 1) throw textless(); return n; }\n"
                   "extern \"C\" int textless_thrower_payload_init(void*, std::size_t, void*, "
                   "std::size_t) { throw textless(); }\n"
                   "MAIN(textless_thrower) { throw textless(); }\n"));
    const std::string text = "an exception without a message";
    for (const std::string_view args : {"1", "12"}) {
        const error why = error_of([&] { (void)thrower.create(as_bytes_of(args)); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_TRUE(std::string_view(why.what()).ends_with(text)) << why.what();
    }
    for (const bool confined : {false, true}) {
#if defined(AMALGAM_ASAN)  // AddressSanitizer makes system calls on each throw.
        if (confined) continue;
#endif
        if (confined && is_emulated()) continue;  // qemu has no seccomp.
        const injection_target target(at_target, open_to_all({.confined = {.on = confined}}));
        const error why = error_of([&] { (void)thrower.create(1).call(there); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_EQ(std::string_view(why.what()), text);
    }
}

TEST_F(injector_test, a_result_of_another_type_is_a_mismatch) {
    const injection_target target(at_target, open_to_all());
    const auto wrong = inject.add<std::uint64_t(std::string)>(adder());  // Declares no signature.
    const error why = error_of([&] { (void)wrong.call(there, "x"); });
    EXPECT_EQ(why.code(), errc::mismatch) << why.what();
    auto later = wrong.start(there, "x");
    EXPECT_EQ(error_of([&] { (void)later.get(); }).code(), errc::mismatch);
}

TEST_F(injector_test, an_engine_has_one_injector) {
    EXPECT_EQ(error_of([&] { injector second(at_source); }).code(), errc::invalid);
    const injection_target target(at_target, open_to_all());
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    message.post(there);  // The target asks the first injector.
    wait_for_sum(6);
}

TEST_F(injector_test, code_is_brought_to_a_target_once) {
    std::atomic<int> brought{0};
    struct counts : interceptor {
        explicit counts(std::atomic<int>& into) : count(into) {}
        bool sees_library_procedures() const noexcept override { return true; }
        void serving(call_context& call) override {
            count += call.procedure() == "amalgam.inject.bring";
        }
        std::atomic<int>& count;
    };
    for (int targets = 1; targets <= 2; ++targets) {
        engine keeps("shm://", {.interceptors = {std::make_shared<counts>(brought)}});
        const injection_target target(keeps, open_to_all());
        const peer keeper = at_source.lookup(keeps.address());
        const injection message = inject.add(adder()).create(as_bytes_of(ones));
        for (int i = 0; i < 5; ++i)
            (void)message.call(keeper);
        EXPECT_EQ(brought, targets);
    }
}

TEST_F(injector_test, one_message_is_sent_by_several_threads_at_once) {
    const injection_target target(at_target, open_to_all());
    const injection message =
        inject.add(compiled("same", "MAIN(same) { amalgam_inject_result(payload, size); }"))
            .create(1000);
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 50; ++n) {
                right += message.call(there) == std::vector<std::byte>(1000);
                message.post(there);
            }
        });
    for (std::thread& each : threads)
        each.join();
    EXPECT_EQ(right, 200);
    poll_until([&] { return target.runs() == 400; });
    EXPECT_EQ(target.runs(), 400u);
}

// ---- requests for code

TEST_F(injector_test, targets_get_the_code_of_posts_while_a_handle_of_it_is_there) {
    const injection_target target(at_target, open_to_all());
    const auto refused = [&] { return at_target.counters().get("inject.refused").value(); };
    std::optional<injected_function> function = inject.add(adder());
    std::optional<injection> message = function->create(as_bytes_of(ones));
    function.reset();
    at_source.run([&] {
        message->post(there);  // No request for the code can be served before this returns.
        message.reset();
    });
    poll_until([&] { return refused() == 1; });
    EXPECT_EQ(refused(), 1u);
    EXPECT_EQ(target.runs(), 0u);
    function = inject.add(adder());
    message = function->create(as_bytes_of(ones));
    function.reset();
    message->post(there);
    wait_for_sum(6);
}

TEST_F(injector_test, what_outlives_its_injector_can_be_called_and_is_not_given_to_who_asks) {
    const injection_target target(at_target, open_to_all());
    engine source("shm://");
    const peer target_there = source.lookup(at_target.address());
    auto of_source = std::make_unique<injector>(source);
    const injection message = of_source->add(adder()).create(as_bytes_of(ones));
    of_source.reset();
    message.post(target_there);
    poll_until([&] { return at_target.counters().get("inject.refused").value() == 1; });
    EXPECT_EQ(at_target.counters().get("inject.refused").value(), 1u);
    EXPECT_EQ(target.runs(), 0u);
    EXPECT_EQ(text_of(message.call(target_there)), "6");
    message.post(target_there);
    wait_for_sum(12);
}

}  // namespace
}  // namespace amalgam

// What a target accepts, how it ends, and what its code may request.
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/inject/injection_ring.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "inject/protocol/procedures.hpp"
#include "inject/source/injector_testing.hpp"
#include "memory/memory.hpp"
#include "rpc/without_waiting.hpp"

namespace amalgam {
namespace {

TEST_F(injector_test, an_engine_has_one_target_which_a_second_does_not_disturb) {
    const injection_target target(at_target, open_to_all());
    const error why = error_of([&] { injection_target second(at_target, open_to_all()); });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_STREQ(why.what(),
                 "this engine already has an injection_target, expected at most one per engine: "
                 "use that one, or create another engine");
    const injection message = inject.add(adder()).create(as_bytes_of(ones));
    EXPECT_EQ(text_of(message.call(there)), "6");
    message.post(there);
    wait_for_sum(12);
    EXPECT_EQ(target.runs(), 2u);
}

TEST_F(injector_test, at_the_end_of_a_target_no_call_begins_and_what_runs_ends_by_itself) {
    injection_options options = open_to_all();
    static std::atomic<bool> runs_now, go, gone;
    runs_now = go = gone = false;
    options.exports["wait_for_test"] = reinterpret_cast<void*>(+[] {
        runs_now = true;
        while (!go.load())
            this_task::sleep_for(1ms);
    });
    options.exports["gone_for_test"] = reinterpret_cast<void*>(+[] { gone = true; });
    auto target = std::make_unique<injection_target>(at_target, options);
    const injected_function slow = inject.add(compiled("slow", R"(
extern "C" void wait_for_test();
extern "C" void gone_for_test();
struct tells { ~tells() { gone_for_test(); } };
static tells last;
MAIN(slow) { wait_for_test(); amalgam_inject_result("still here", 10); }
)"));
    auto later = slow.create(1).start(there);
    poll_until([] { return runs_now.load(); });
    target.reset();
    EXPECT_EQ(error_of([&] { (void)slow.create(1).call(there); }).code(), errc::not_found);
    EXPECT_FALSE(gone);
    go = true;
    EXPECT_EQ(text_of(later.get()), "still here");
    poll_until([] { return gone.load(); });
    EXPECT_TRUE(gone);
    const injection_target another(at_target, open_to_all());
    EXPECT_EQ(text_of(inject.add(adder()).create(as_bytes_of(ones)).call(there)), "6");
}

TEST_F(injector_test, ends_where_it_cannot_wait_and_no_call_begins) {
    other_engines others;
    for (const cannot_wait where : {cannot_wait::in_call_then, cannot_wait::in_an_inline_handler,
                                    cannot_wait::in_a_tasklet}) {
        engine own{"shm://"};
        auto target = std::make_unique<injection_target>(at_target, open_to_all());
        auto source = std::make_unique<injector>(own);
        const injected_function added = inject.add(adder());
        (void)added.create(as_bytes_of(ones)).call(there);
        others.run(where, [&] {
            target.reset();
            source.reset();
        });
        // Already, though the engine may still have its procedures.
        EXPECT_EQ(error_of([&] { (void)added.create(1).call(there); }).code(), errc::not_found);
        await_stream(own);
        const injector another(own);
        await_stream(at_target);
    }
}

TEST_F(injector_test, new_code_runs_while_the_old_of_its_name_does) {
    injection_options options = open_to_all();
    static std::atomic<bool> go{false};
    go = false;
    options.exports["wait_for_test"] = reinterpret_cast<void*>(+[] {
        while (!go.load())
            this_task::sleep_for(1ms);
    });
    const injection_target target(at_target, options);
    const injected_function old = inject.add(
        compiled("versioned",
                 "extern \"C\" void wait_for_test();\n"
                 "MAIN(versioned) { wait_for_test(); amalgam_inject_result(\"old\", 3); }"));
    auto later = old.create(1).start(there);
    poll_until([&] { return target.runs() == 1; });
    const injected_function fresh =
        inject.add(compiled("versioned", "MAIN(versioned) { amalgam_inject_result(\"new\", 3); }"));
    EXPECT_EQ(text_of(fresh.create(1).call(there)), "new");
    go = true;
    EXPECT_EQ(text_of(later.get()), "old");
}

// ---- what it accepts

TEST_F(injector_test, larger_images_and_unknown_imports_are_refused_to_their_callers) {
    const injection_target target(at_target,
                                  open_to_all({.max_image_bytes = adder().bytes().size()}));
    EXPECT_EQ(text_of(inject.add(adder()).create(as_bytes_of(ones)).call(there)), "6");
    const error large = error_of([&] {
        (void)inject
            .add(compiled("large",
                          "static const char much[20000] = {1};\n"
                          "MAIN(large) { amalgam_inject_result(much, size); }"))
            .create(1)
            .call(there);
    });
    EXPECT_EQ(large.code(), errc::too_large) << large.what();
    const error unknown = error_of([&] {
        (void)inject
            .add(compiled("wants",
                          "extern \"C\" void nobody_has_this();\n"
                          "MAIN(wants) { nobody_has_this(); }"))
            .create(1)
            .call(there);
    });
    EXPECT_EQ(unknown.code(), errc::not_found);
    EXPECT_NE(std::string(unknown.what()).find("nobody_has_this"), std::string::npos);
}

TEST_F(injector_test, the_own_check_is_asked_last_and_refuses_by_whatever_it_throws) {
    std::atomic<int> asked{0};
    std::atomic<int> throws{0};
    injection_options options = open_to_all();
    options.allows.names = {"adder"};
    options.allows.check = [&](const code_image&) {
        ++asked;
        if (throws == 1) throw error(errc::denied, "not this one");
        if (throws == 2) throw std::runtime_error("not today");
        if (throws == 3) throw 7;
        if (throws == 4) throw error(errc::denied, std::string(10'000'000, 'x'));
    };
    injection_target target(at_target, options);
    const auto refusal = [&](const code_image& image) {
        const error why = error_of([&] { (void)inject.add(image).create(1).call(there); });
        EXPECT_EQ(why.code(), errc::denied);
        return std::string(why.what());
    };
    (void)refusal(compiled("other", "MAIN(other) {}"));
    EXPECT_EQ(asked, 0);
    const std::string sentences[] = {"not this one", "the image adder may not run here: not today",
                                     "the image adder may not run here: the target's own check "
                                     "threw an exception not derived from std::exception"};
    for (throws = 1; throws <= 3; ++throws)
        EXPECT_EQ(refusal(adder()), sentences[throws - 1]);
    EXPECT_LT(refusal(adder()).size(), 2000u);
    EXPECT_EQ(asked, 4);
    EXPECT_EQ(at_target.counters().get("inject.refused").value(), 5u);
    throws = 0;
    (void)inject.add(adder()).create(1).call(there);
    throws = 2;
    target.set_policy(options.allows);
    EXPECT_EQ(target.images(), 0u) << "what is there is asked about, too";
}

TEST_F(injector_test, an_interceptor_says_who_may_call_signed_code) {
    struct keeps_out : interceptor {
        bool sees_library_procedures() const noexcept override { return true; }
        void serving(call_context& call) override {
            if (closed && call.procedure().starts_with("amalgam.inject."))
                throw error(errc::denied, "not you");
        }
        std::atomic<bool> closed{false};
    };
    const auto door = std::make_shared<keeps_out>();
    const signing_key known = signing_key::generate();
    for (const handler run : {handler::ult, handler::inline_}) {
        door->closed = false;
        engine guarded("shm://", {.interceptors = {door}});
        const injection_target target(
            guarded, {.allows = {.trusted = {known.signer()}}, .target_args = &sum, .run = run});
        const peer guard = at_source.lookup(guarded.address());
        for (const shipping how : {shipping::once, shipping::always}) {
            door->closed = false;
            const injection message =
                inject.add(adder().signed_by(known)).create(as_bytes_of(ones), how);
            (void)message.call(guard);
            door->closed = true;
            EXPECT_EQ(error_of([&] { (void)message.call(guard); }).code(), errc::denied);
            const std::uint64_t runs = target.runs();
            message.post(guard);
            EXPECT_EQ(error_of([&] { (void)message.call(guard); }).code(), errc::denied);
            EXPECT_EQ(target.runs(), runs) << "what was posted before that call";
        }
    }
}

// ---- requests by its code

TEST_F(injector_test, the_last_result_counts_as_it_was_when_it_was_given) {
    const injection_target target(at_target, open_to_all());
    const injected_function gives = inject.add(compiled("gives", R"(
MAIN(gives) {
    char text[] = "first";
    amalgam_inject_result(text, 5);
    std::strcpy(text, "last");
    if (amalgam_inject_result(text, 4) != 0) throw std::runtime_error("it was called");
    std::memset(text, 'x', sizeof text);
}
)"));
    EXPECT_EQ(text_of(gives.create(1).call(there)), "last");
}

TEST_F(injector_test, results_that_are_longer_than_their_room_are_cut_and_measured) {
    const injection_target target(at_target, open_to_all());
    at_source.define("long", [](const_bytes) { return std::vector<std::byte>(100, std::byte{7}); });
    const injected_function asks = inject.add(compiled("asks", R"(
extern "C" long amalgam_inject_call(const char*, const char*, const void*, std::size_t, void*, std::size_t);
MAIN(asks) {
    unsigned char text[20] = {};
    const long bytes = amalgam_inject_call(nullptr, "long", payload, 0, text, 10);
    const std::string all = std::to_string(bytes) + " " + std::to_string(text[9]) + std::to_string(text[10]);
    amalgam_inject_result(all.data(), all.size());
}
)"));
    EXPECT_EQ(text_of(asks.create(1).call(there)), "100 70");
}

TEST_F(injector_test, a_call_without_an_address_is_to_who_sent_the_code) {
    const injection_target target(at_target, open_to_all());
    at_source.define("twice", [](int n) { return 2 * n; });
    at_target.define("twice", [](int) { return -1; });
    const auto asks = inject.add<int(std::string, int)>(compiled_cpp("asks", R"(
int asks(long&, const std::string& where, int n) {
    return amalgam::injected_call<int(int)>("twice", where)(n);
}
)"));
    EXPECT_EQ(asks.call(there, "", 21), 42);
    EXPECT_EQ(asks.call(there, at_target.address(), 21), -1) << "of the one that it is in";
    const auto wrong = inject.add<double(int)>(
        compiled_cpp("wrong",
                     "double wrong(long&, int n) {\n"
                     "    return amalgam::injected_call<double(int)>(\"twice\")(n);\n}\n"));
    EXPECT_EQ(error_of([&] { (void)wrong.call(there, 1); }).code(), errc::handler_failed);
}

TEST_F(injector_test, attached_memory_may_be_of_any_process_and_is_used_in_its_bounds) {
    const injection_target target(at_target, open_to_all());
    const auto last = inject.add<std::uint64_t(bulk, bulk)>(compiled_cpp("last", R"(
#include <cstdint>
std::uint64_t last(long&, const amalgam::attached_bulk& from, const amalgam::attached_bulk& to) {
    const std::vector<std::uint32_t> all = from.pull_all<std::uint32_t>();
    to.push(0, std::as_bytes(std::span(all)));
    std::byte one{};
    int refused = 0;
    try { from.pull(from.bytes(), {&one, 1}); } catch (const std::runtime_error&) { ++refused; }
    try { from.push(0, {&one, 1}); } catch (const std::runtime_error&) { ++refused; }
    const bool none = amalgam::attached_bulk(2).bytes() == 0 && amalgam_inject_attached(2) == -1;
    return refused == 2 && none ? all.size() : 0;
}
)"));
    engine third("shm://"), fourth("shm://");
    const std::vector<std::byte> numbers(4 * 1000 + 3, std::byte{1});  // One more is incomplete.
    std::vector<std::byte> results(4 * 1000 + 3);
    const exposed from = expose(third, numbers);
    exposed to = expose(fourth, results, access::read_write);
    EXPECT_EQ(last.call(there, from, to), 1000u);
    to.close();  // No more writes from here on.
    EXPECT_EQ(results[3999], std::byte{1});
    EXPECT_EQ(results[4000], std::byte{0});
}

TEST_F(injector_test, where_handlers_run_inline_code_cannot_wait_and_is_told) {
    const injection_target target(at_target, open_to_all({.run = handler::inline_}));
    at_source.define("twice", [](int n) { return 2 * n; });
    at_source.define("bytes", [](const_bytes) { return std::vector<std::byte>(); });
    const auto asks = inject.add<std::string(std::string)>(compiled_cpp("asks", R"(
std::string asks(long&, const std::string& onward) {
    std::string told;
    try { (void)amalgam::injected_call<int(int)>("twice")(1); } catch (const std::runtime_error&) { told += "refused "; }
    char room[8];
    told += std::to_string(amalgam_inject_call(nullptr, "bytes", room, 0, room, 8));
    return told + std::to_string(amalgam_inject_onward(onward.c_str(), room, 0, room, 8));
}
)"));
    EXPECT_EQ(asks.call(there, at_target.address()), "refused -1-1");
    EXPECT_EQ(asks.call(there, at_target.address()), "refused -1-1") << "and goes on serving";
}

TEST_F(injector_test, what_cannot_be_judged_for_lack_of_memory_is_gone) {
    const signing_key key = signing_key::generate();
    injection_options options = open_to_all();
    options.allows.unsigned_too = false;
    options.allows.trusted = {key.signer()};
    injection_target target(at_target, options);
    const auto bring = at_source.procedure<detail::at_target::bring>(detail::at_target::bring_name);
    const code_image image = adder().signed_by(key);
    bool struck = true, refused = false;
    for (std::uint64_t n = 1; struck; ++n) {
        target.set_policy(options.allows);
        ASSERT_EQ(bring.on(there)(image.bytes()).code, errc::ok);
        injection_policy nobody;
        {
            const memory::failing next(n);
            try {
                target.set_policy(std::move(nobody));
            } catch (const std::bad_alloc&) {
            }
            struck = memory::failing::struck();
        }
        const std::size_t left = target.images();
        const bool replaced = bring.on(there)(image.bytes()).code == errc::denied;
        EXPECT_EQ(left, replaced ? 0u : 1u) << n;
        refused = refused || (struck && replaced);
    }
    EXPECT_TRUE(refused);
}

TEST_F(injector_test, an_image_for_which_there_is_no_memory_is_refused_and_runs_later) {
    const signing_key key = signing_key::generate();
    injection_options options = open_to_all();
    options.allows.trusted = {key.signer()};
    const injection_target target(at_target, options);
    injection_ring ring(target, 1 << 20);
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    std::uint64_t runs = 0;
    bool struck = true;
    for (std::uint64_t n = 1; struck; ++n) {
        const std::chrono::sys_seconds another{std::chrono::seconds(n)};
        const injection message =
            inject.add(adder().signed_by(key, {.not_before = another})).create(as_bytes_of(ones));
        writer.post(message);
        {
            const memory::failing next(n);
            try {
                (void)ring.poll();
            } catch (const std::bad_alloc&) {  // What it could not take is still there.
            }
            struck = memory::failing::struck();
        }
        (void)ring.poll();
        writer.post(message);
        runs = target.runs();
        EXPECT_EQ(ring.poll(), 1u) << n;
        EXPECT_EQ(target.runs(), runs + 1) << n;
    }
}

}  // namespace
}  // namespace amalgam

// What ends on another engine's stream, where it cannot wait for its own.
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/provider.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"
#include "rpc/without_waiting.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

struct shelf {
    event* goes_on = nullptr;
    std::atomic<bool> runs{false};
    int take(int book) {
        runs = true;
        if (goes_on != nullptr) goes_on->wait();
        return book;
    }
};

class ends_elsewhere : public testing::TestWithParam<cannot_wait> {
protected:
    void elsewhere(const std::function<void()>& work) { others.run(GetParam(), work); }
    result<int> take(int book) {
        return others.client.procedure<int(int)>("take").on(own.address(), 2).try_call(book);
    }
    std::unique_ptr<provider<shelf>> make() {
        auto made = std::make_unique<provider<shelf>>(own, "shelf", object,
                                                      procedure_options{.provider = 2});
        made->define("take", &shelf::take);
        return made;
    }

    engine own{"shm://"};
    other_engines others;
    std::shared_ptr<shelf> object = std::make_shared<shelf>();
};

INSTANTIATE_TEST_SUITE_P(where, ends_elsewhere, all_that_cannot_wait, name_of);

TEST_P(ends_elsewhere, a_provider_is_no_longer_served) {
    auto one = make();
    EXPECT_EQ(take(7).value(), 7);
    elsewhere([&] { one.reset(); });
    await_stream(own);
    EXPECT_EQ(take(7).code(), errc::not_found);
    EXPECT_EQ(identity_of(others.client, others.client.lookup(own.address()), 2), "");
    EXPECT_EQ(object.use_count(), 1);
    one = make();
    EXPECT_EQ(take(8).value(), 8);
}

TEST_P(ends_elsewhere, a_call_of_a_provider_finishes) {
    event goes_on;
    object->goes_on = &goes_on;
    auto one = make();
    auto call = others.client.procedure<int(int)>("take").on(own.address(), 2).start(7);
    while (!object->runs)
        std::this_thread::yield();
    elsewhere([&] { one.reset(); });
    await_stream(own);
    goes_on.set();
    EXPECT_EQ(call.get(), 7);
}

TEST_P(ends_elsewhere, a_provider_takes_no_name_with_it_that_others_defined_since) {
    auto one = make();
    own.undefine("take", 2);
    own.define("take", [](int) { return 9; }, {.provider = 2});
    elsewhere([&] { one.reset(); });
    await_stream(own);
    EXPECT_EQ(take(7).value(), 9);
}

TEST_P(ends_elsewhere, an_engine_that_ends_next_does_not_lose_what_was_handed_to_it) {
    auto brief = std::make_unique<engine>("shm://");
    auto one = std::make_unique<provider<shelf>>(*brief, "shelf", object);
    one->define("take", &shelf::take);
    elsewhere([&] {
        one.reset();
        brief.reset();
    });
    while (object.use_count() != 1)
        std::this_thread::yield();
}

TEST_P(ends_elsewhere, undefine_says_that_it_would_wait) {
    auto one = make();
    errc by_name = errc::ok, by_provider = errc::ok;
    elsewhere([&] {
        by_name = error_of([&] { own.undefine("take", 2); }).code().code;
        by_provider = error_of([&] { one->undefine("take"); }).code().code;
    });
    EXPECT_EQ(by_name, errc::invalid);
    EXPECT_EQ(by_provider, errc::invalid);
    EXPECT_EQ(take(7).value(), 7);
    EXPECT_TRUE(one->undefine("take"));
}

TEST_P(ends_elsewhere, a_subscription_does_not_wait_for_its_function) {
    event goes_on;
    std::atomic<bool> runs{false}, ran{false};
    auto lost = own.on_peer_lost([&](const peer&, status) {
        runs = true;
        goes_on.wait();
        ran = true;
    });
    auto brief = std::make_unique<engine>("shm://");
    brief->procedure<std::uint64_t(std::uint64_t)>("amalgam.ping").on(own.address())(1);
    brief.reset();
    while (!runs)
        std::this_thread::yield();
    elsewhere([&] { lost.end(); });
    EXPECT_FALSE(ran);
    goes_on.set();
    while (!ran)
        std::this_thread::yield();
}

TEST(ends_elsewhere_in_virtual_time, a_provider_and_an_exposure_do) {
    loop_pair both;
    engine own{both.net.port("own")};
    const auto object = std::make_shared<shelf>();
    std::optional<provider<shelf>> one(std::in_place, own, "shelf", object);
    one->define("take", &shelf::take);
    std::vector<std::byte> bytes(100);
    const mutable_bytes all(bytes);
    std::optional<detail::exposure> open(std::in_place, own.core(), scatter(&all, 1), access::read);
    both.client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
        .on(both.there())
        .call_then(
            [&](const result<std::uint64_t>&) {
                one.reset();
                open.reset();
            },
            1);
    both.net.run_until_idle();
    EXPECT_FALSE(one || open);
    EXPECT_EQ(object.use_count(), 1);
}

TEST(a_provider, may_own_another_of_its_engine) {
    struct inner {
        int count() { return 1; }
    };
    struct outer {
        std::vector<std::unique_ptr<provider<inner>>> owned;
        int count() { return static_cast<int>(owned.size()); }
    };
    engine own{"shm://"};
    auto top = std::make_shared<outer>();
    for (std::uint16_t id = 1; id < 20; ++id) {
        top->owned.push_back(std::make_unique<provider<inner>>(
            own, "inner", std::make_shared<inner>(), procedure_options{.provider = id}));
        top->owned.back()->define("count", &inner::count);
    }
    auto whole = std::make_unique<provider<outer>>(own, "outer", std::exchange(top, nullptr));
    whole->define("count", &outer::count);
    own.define("stays", [] { return 5; });
    const peer self = own.lookup(own.address());
    EXPECT_EQ(own.procedure<int()>("count").on(self)(), 19);
    whole.reset();
    await_stream(own);
    for (std::uint16_t id = 0; id < 20; ++id)
        EXPECT_EQ(own.procedure<int()>("count").on(self, id).try_call().code(), errc::not_found);
    EXPECT_EQ(own.procedure<int()>("stays").on(self)(), 5);
}

}  // namespace
}  // namespace amalgam

// All forms of call and of answer, over one connection.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

using namespace std::chrono_literals;

namespace {

void expect(bool fact, const char* what) {
    if (!fact) throw std::logic_error(what);
    std::cout << what << '\n';
}

/// Admits callers that send the right word; its client side sends it.
struct password : am::interceptor {
    explicit password(std::string says) : word(std::move(says)) {}
    void calling(am::outgoing_call& call) override { call.attach("password", word); }
    void serving(am::call_context& call) override {
        if (call.metadata("password") != word) throw am::error(am::errc::denied, "wrong password");
    }
    std::string word;
};

void define_all(am::engine& server, std::optional<am::responder<int>>& waiting) {
    server.define("sum", [](int a, int b) { return a + b; });
    server.define("store", [](am::responder<std::size_t> answer, std::string text) {
        answer(text.size());              // the caller goes on,
        am::this_task::sleep_for(100us);  // and so does the handler
    });
    server.define("next", [&](am::responder<int> answer) { waiting = std::move(answer); });
    server.define("tell", [&](int value) { (*std::exchange(waiting, std::nullopt))(value); });
    server.define("count", [](am::stream_writer<int>& out, int from, int to) {
        for (int i = from; i < to; ++i)
            out(i);
    });
    server.define("add_up", [](am::stream_reader<int>& in, int start) {
        for (int each : in)
            start += each;
        return start;
    });
    server.define("doubles", [](am::stream_reader<int>& in, am::stream_writer<int>& out) {
        for (int each : in)
            out(2 * each);
    });
    server.define("slow", [] { am::this_task::sleep_for(1h); });
    for (const std::uint16_t shelf : {std::uint16_t{1}, std::uint16_t{2}})
        server.define("shelf", [shelf] { return shelf * 100; }, {.provider = shelf});
    server.define("total", [](am::bulk numbers) {
        const std::vector<double> all = numbers.pull_all<double>();  // from the caller's memory
        return std::accumulate(all.begin(), all.end(), 0.0);
    });
}

}  // namespace

int main() {
    std::optional<am::responder<int>> waiting;
    am::engine server{"tcp://127.0.0.1:0", {.interceptors = {std::make_shared<password>("hi")}}};
    define_all(server, waiting);
    am::engine client{"tcp://", {.interceptors = {std::make_shared<password>("hi")}}};
    const am::peer there = client.lookup(server.address());

    auto sum = client.procedure<int(int, int)>("sum", {.idempotent = true}).on(there);
    expect(sum(2, 3) == 5, "a call that waits");
    expect(*sum.try_call(2, 3) == 5, "the same, which never throws");
    am::future<int> later = sum.start(2, 3);
    expect(later.get() == 5, "a call behind a future");
    am::eventual<int> told;
    sum.call_then([&](am::result<int> how) { told.set(how ? *how : 0); }, 2, 3);
    expect(told.wait() == 5, "a call that tells a function");
    expect(sum.within(1s).retrying(3, 10ms).urgent()(2, 3) == 5,
           "with a deadline, retries and priority");

    auto slow = client.procedure<void()>("slow").on(there);
    expect(slow.within(5ms).try_call().code() == am::errc::timed_out, "a deadline that passed");
    am::future<void> unwanted = slow.start();
    unwanted.cancel();
    expect(unwanted.wait() == am::errc::canceled, "a call that was canceled, on the server too");

    auto store = client.procedure<std::size_t(std::string)>("store").on(there);
    expect(store(std::string(1'000'000, 's')) == 1'000'000, "an early answer to a large argument");
    am::future<int> next = client.procedure<int()>("next").on(there).start();
    client.procedure<void(int)>("tell").on(there).post(7);
    expect(next.get() == 7, "an answer that another call brought, one-way");

    int sum_of_all = 0;
    for (int each : client.procedure<am::streamed<int>(int, int)>("count").on(there)(0, 10))
        sum_of_all += each;
    expect(sum_of_all == 45, "a streamed answer");

    auto up = client.procedure<int(am::streaming<int>, int)>("add_up").on(there).open(100);
    for (int each : {1, 2, 3})
        up.send(each);
    expect(up.get() == 106, "a stream to a handler");
    auto both = client.procedure<am::streamed<int>(am::streaming<int>)>("doubles").on(there).open();
    both.send(21);
    expect(*both.next() == 42, "streams both ways");
    both.finish();

    auto shelf = client.procedure<int()>("shelf");
    expect(shelf.on(there, 1)() + shelf.on(there, 2)() == 300, "two providers of one procedure");

    std::vector<double> numbers(100'000, 0.5);
    const am::exposed shown = am::expose(client, numbers);
    auto total = client.procedure<double(am::bulk)>("total").on(there);
    expect(total(shown.descriptor()) == 50'000, "memory that the handler reads by itself");
}

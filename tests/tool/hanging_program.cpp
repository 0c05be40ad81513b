#include <atomic>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

// What why_test asks: one process of a bank whose calls hang. Says its address, then does what its
// input says, a line each, and ends with it.
//
//   ult PATH…      a ULT locks the accounts, then follows the path
//   thread PATH…   a plain thread does
//   future PATH…   a ULT without the accounts does, by a future
//   write PATH…    a ULT that writes the ledger does
//   audit PATH…    a ULT that reads the ledger does
//
//   send URI       a ULT opens a stream to a handler, sends one value, and sleeps
//   unread URI     a ULT opens a stream from a handler that does not end, reads one, and sleeps
//   read URI       a ULT with the accounts reads a stream from a handler that sends one value,
//                  and sleeps
//
// To follow a path is to call the first address in it, which follows the rest; "caller" is whoever
// called. Where the path ends, the accounts are locked, or what its last word says is done:
// "ledger" reads the ledger, "entry" writes it, "news" waits for a condition.

namespace {

using path = std::vector<std::string>;

class branch {
public:
    explicit branch(const char* name)
        : here_(am::endpoints{"tcp://127.0.0.1:0"}, am::engine_options{.name = name}) {
        here_.define("relay", [this](path rest) {
            follow(rest, [](const auto& bound, const path& then) { bound(then); });
        });
        here_.define("spin",
                     [](path) {
                         const std::atomic<bool> never{false};
                         while (!never) {
                         }
                     },
                     {.streams = 1});
        here_.define("later", [this](am::responder<void> answer, path) {
            left_.push_back(std::move(answer));
        });
        here_.define("take", [](am::stream_reader<int>& in) {
            for ([[maybe_unused]] const int each : in) {
            }
        });
        here_.define("give", [](am::stream_writer<int>& out, bool ends) {
            do {
                out(1);
            } while (!ends);
            am::this_task::sleep_for(std::chrono::hours(1));
        });
        am::offer_metrics(here_);
    }
    std::string address() const { return here_.address(); }

    void obey(const std::string& line) {
        std::istringstream words(line);
        std::string who;
        words >> who;
        path rest;
        for (std::string each; words >> each;)
            rest.push_back(each);
        if (who == "send" || who == "unread" || who == "read")
            return am::spawn(own_, [this, who, rest] { stream(who, here_.lookup(rest.at(0))); },
                             {.name = "reader"})
                .detach();
        const auto wait = [](const auto& bound, const path& then) { bound(then); };
        const auto act = [this, rest, wait] {
            const std::lock_guard hold(accounts_);
            follow(rest, wait);
        };
        if (who == "thread") {
            std::thread(act).detach();
        } else if (who == "write") {
            am::spawn(own_,
                      [this, rest, wait] {
                          const std::lock_guard hold(ledger_);
                          follow(rest, wait);
                      },
                      {.name = "writer"})
                .detach();
        } else if (who == "audit") {
            am::spawn(own_,
                      [this, rest, wait] {
                          const std::shared_lock hold(ledger_);
                          follow(rest, wait);
                      },
                      {.name = "auditor"})
                .detach();
        } else if (who == "ult") {
            am::spawn(own_, act, {.name = "teller"}).detach();
        } else {
            am::spawn(own_,
                      [this, rest] {
                          follow(rest, [](const auto& bound, const path& then) {
                              bound.start(then).get();
                          });
                      },
                      {.name = "clerk"})
                .detach();
        }
    }

private:
    void stream(const std::string& how, const am::peer& there) {
        if (how == "send") {
            auto up = here_.procedure<void(am::streaming<int>)>("take").on(there).open();
            up.send(1);
            am::this_task::sleep_for(std::chrono::hours(1));
        }
        const std::lock_guard hold(accounts_);
        auto values =
            here_.procedure<am::streamed<int>(bool)>("give").on(there).window(2)(how == "read");
        do {
            values.next();
        } while (how == "read");
        am::this_task::sleep_for(std::chrono::hours(1));
    }

    template <typename Call>
    void follow(path rest, Call call) {
        if (rest.empty()) {
            const std::lock_guard hold(accounts_);
            return;
        }
        const std::string next = rest.front();
        rest.erase(rest.begin());
        if (next == "sleep") return am::this_task::sleep_for(std::chrono::hours(1));
        if (next == "ledger") {
            const std::shared_lock hold(ledger_);
            return;
        }
        if (next == "entry") {
            const std::lock_guard hold(ledger_);
            return;
        }
        if (next == "news") {
            std::unique_lock hold(accounts_);
            return news_.wait(hold);
        }
        if (next == "hog") {
            const std::atomic<bool> never{false};
            while (!never) {
            }
        }
        const am::peer there =
            next == "caller" ? am::call_context::current().from() : here_.lookup(next);
        const bool other = !rest.empty() && (rest.front() == "spin" || rest.front() == "later");
        call(here_.procedure<void(path)>(other ? rest.front() : "relay").on(there), rest);
    }

    am::mutex accounts_;
    am::shared_mutex ledger_;
    am::condition_variable news_;
    std::vector<am::responder<void>> left_;
    am::engine here_;
    am::execution_stream own_;
};

}  // namespace

int main(int argc, char** argv) {
    branch here(argc > 1 ? argv[1] : "bank");
    std::printf("%s\n", here.address().c_str());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);)
        here.obey(line);
    ::_exit(0);  // What hangs would be waited for.
}

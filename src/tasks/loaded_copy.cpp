// A shared object that contains a copy of the library, for loaded_copies_test.cpp.

#include <csignal>
#include <string>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

/// Uses every feature that keeps per-thread state. Returns 42 on success.
extern "C" int run_copy() {
    static amalgam::ult_local<std::string> mine;
    amalgam::execution_stream stream;
    amalgam::promise<int> made;
    amalgam::future<int> wanted = made.get_future();
    amalgam::ult one = spawn(stream, [&] {
        mine.get() = "of a ULT";
        made.set_value(static_cast<int>(amalgam::list_ults(true).size()));
    });
    mine.get() = "of a thread";
    const int seen = wanted.get();
    one.join();
    return seen == 1 ? 42 : seen;
}

extern "C" void print_on_signal(int number) {
    amalgam::print_ults_on_signal(number);
}

// A server found by its attributes, and clients that send it requests. Start each in its own shell;
// the first one starts this host's directory, if amalgam is on the PATH:
//
//     resources serve adder
//     resources ask adder 2 3
//     amalgam find type=adder
//
// `resources alone` does all of it in one process, with its own directory.

#include <charconv>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/directory.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

namespace {

/// Answers each message of two numbers with their sum.
void serve(am::context& here, const std::string& type) {
    const am::resource server = here.add({{"type", type}, {"version", "1"}});
    for (;;) {
        const am::resource_message asked = server.receive();
        const std::string_view both = asked.content.text();
        if (both == "end") return;
        int a = 0, b = 0;
        const char* const end = both.data() + both.size();
        const auto first = std::from_chars(both.data(), end, a);
        if (first.ptr != end) std::from_chars(first.ptr + 1, end, b);
        server.send(asked.from, asked.tag, std::to_string(a + b));
    }
}

bool ask(am::context& here, const std::string& type, const std::string& both) {
    am::attribute_list wanted{{"type", type}};
    wanted.ask("version");
    const auto server = here.find(wanted);
    if (!server) {
        std::cout << "no resource is of type " << type << '\n';
        return false;
    }
    const am::resource client = here.add({{"type", "client"}});
    client.send(server->id, 1, both);
    if (both == "end") return true;
    const am::resource_message answer = client.receive({.from = server->id, .tag = 1});
    std::cout << answer.content.text() << ", says version " << server->what.text("version") << '\n';
    return true;
}

bool alone() {
    am::context here("shm://", {.directory = "here"});
    am::channel<bool> registered(1);
    const am::resource_watch watch =
        here.watch({{"type", "adder"}}, [&](const am::resource_change& change) {
            if (change.what == am::resource_change::kind::appeared) registered.push(true);
        });
    am::ult server = am::spawn(here.where().stream(), [&] { serve(here, "adder"); });
    registered.pop();
    const bool answered = ask(here, "adder", "2 3") && ask(here, "adder", "end");
    server.join();
    return answered && !here.find({{"type", "adder"}});
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    try {
        if (words.size() == 1 && words[0] == "alone") return alone() ? 0 : 1;
        if (words.size() == 2 && words[0] == "serve") {
            am::context here;
            serve(here, words[1]);
            return 0;
        }
        if (words.size() == 4 && words[0] == "ask") {
            am::context here;
            return ask(here, words[1], words[2] + " " + words[3]) ? 0 : 1;
        }
    } catch (const am::error& why) {
        std::cerr << "resources: " << why.what() << '\n';
        return 1;
    }
    std::cerr << "usage: resources serve TYPE | ask TYPE A B | alone\n"
                 "example: resources ask adder 2 3\n";
    return 2;
}

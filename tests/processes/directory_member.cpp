// A process with a resource, for directory_test. `directory_member box NAME [PORT]` registers
// {name: NAME}, and answers each message with "NAME got TEXT". `directory_member ask NAME TEXT
// [PORT]` finds it, sends TEXT, and prints the answer. `directory_member wait NAME` prints
// "appeared" and "gone" when that happens; {watches: NAME} exists once it watches. PORT: where it
// listens, in addition to shared memory.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <unistd.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/ult.hpp>

using namespace amalgam;
using namespace std::chrono_literals;

namespace {

void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

int box(context& here, const std::string& name) {
    const resource mine = here.add({{"name", name}});
    const ult answers = spawn(here.where().stream(), [&] {
        for (;;) {
            const resource_message asked = mine.receive();
            mine.send(asked.from, asked.tag, name + " got " + std::string(asked.content.text()));
        }
    });
    for (;;)
        ::pause();  // Until killed.
}

int ask(context& here, const std::string& name, const std::string& text) {
    for (int attempts = 200; attempts > 0; --attempts) {
        if (const auto found = here.find({{"name", name}})) {
            here.self().send(found->id, 1, text);
            say(std::string(here.self().receive({.from = found->id}).content.text()));
            return 0;
        }
        this_task::sleep_for(50ms);
    }
    say("nobody is called " + name);
    return 1;
}

int wait_for(context& here, const std::string& name) {
    channel<bool> changes(16);
    const resource_watch watch = here.watch({{"name", name}}, [&](const resource_change& change) {
        changes.push(change.what == resource_change::kind::appeared);
    });
    const resource sign = here.add({{"watches", name}});
    say("waits");
    for (int i = 0; i < 2; ++i)
        say(*changes.pop() ? "appeared" : "gone");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string mode = words.empty() ? "" : words[0];
    const std::size_t port = mode == "ask" ? 3 : 2;
    if (words.size() < port) return 2;
    std::vector<std::string> ports{"shm://", words.size() > port ? words[port] : "tcp://"};
    try {
        context here(ports);
        if (mode == "box") return box(here, words[1]);
        if (mode == "ask") return ask(here, words[1], words[2]);
        if (mode == "wait") return wait_for(here, words[1]);
    } catch (const error& why) {
        say(why.what());
        return 1;
    }
    return 2;
}

#include "tpvm.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tpvm {

namespace {

constexpr int enrolled_tag = -1;  // Users' tags are not negative.
constexpr int start_tag = -2;
constexpr int started_tag = -3;
constexpr const char* host_variable = "TPVM_HOST";
constexpr const char* launch_word = "--tpvm-launch";

std::string text_of(tid id) {
    return std::to_string(static_cast<unsigned>(id));
}

tid tid_of(std::string_view text) {
    unsigned number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return static_cast<tid>(number);
}

std::string own_host() {
    const char* const said = std::getenv(host_variable);
    return said != nullptr ? said : "";
}

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> all;
    for (std::string& each : words)
        all.push_back(each.data());
    all.push_back(nullptr);
    return all;
}

std::vector<std::string> split(std::string_view text, char at) {
    std::vector<std::string> all;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(at), text.size());
        all.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

}  // namespace

message endpoint::receive(tid from, std::optional<int> tag) const {
    am::resource_message got = self_.receive({.from = from, .tag = tag});
    return {got.from, got.tag, std::move(got.content)};
}

task::task(am::context& here) : here_(here) {
    self_ = here_.add({{"type", "task"}, {"host", own_host()}});
    pod_ = here_.add({{"type", "systhread"}, {"of", text_of(id())}});
    controller_ = am::spawn(here_.where().stream(), [this] { control_pod(); });
    enroll();
}

task::~task() {
    std::list<am::resource> last;
    {
        const std::lock_guard one(lock_);
        last.swap(registered_);
    }
    last.clear();  // From here on nobody can start threads here.
    pod_.send(pod_.id(), start_tag, "");
    controller_.join();
    for (am::ult& each : threads_)
        each.join();
    for (const int each : started_) {
        int how = 0;
        while (::waitpid(each, &how, 0) == -1 && errno == EINTR) {
        }
    }
}

// The launcher, if any, has registered a temporary resource for this process.
void task::enroll() {
    am::attribute_list wanted{
        {"type", "tmp"}, {"pid", std::to_string(::getpid())}, {"host", own_host()}};
    wanted.ask("ptid");
    const auto found = here_.find(std::move(wanted));
    if (!found) return;
    parent_ = tid_of(found->what.text("ptid"));
    self_.send(parent_, enrolled_tag, "");
}

void task::add_host(const std::string& name, const std::vector<std::string>& how) {
    std::string words;
    for (const std::string& each : how)
        words += each + '\n';
    am::resource fresh = here_.add({{"type", "host"}, {"name", name}, {"how", words}});
    const std::lock_guard one(lock_);
    registered_.push_back(std::move(fresh));
}

std::vector<std::string> task::hosts() {
    std::vector<std::string> names;
    am::attribute_list wanted{{"type", "host"}};
    wanted.ask("name");
    for (const am::found_resource& each : here_.search(std::move(wanted)))
        names.emplace_back(each.what.text("name"));
    return names;
}

std::string own_program() {
    char path[4096];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0) throw am::error(am::errc::internal, "cannot find the path of this program");
    return std::string(path, static_cast<std::size_t>(length));
}

tid task::spawn_task(const std::string& host, const std::vector<std::string>& command) {
    std::vector<std::string> words;
    if (!host.empty()) {
        am::attribute_list wanted{{"type", "host"}, {"name", host}};
        wanted.ask("how");
        const auto found = here_.find(std::move(wanted));
        if (!found)
            throw am::error(am::errc::not_found,
                            "there is no host " + host + "; call add_host() first");
        words = split(found->what.text("how"), '\n');
    }
    for (const std::string& each : {own_program(), std::string(launch_word), text_of(id()), host})
        words.push_back(each);
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> arguments = pointers(words);
    pid_t child = -1;
    const int failed =
        ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
    if (failed != 0)
        throw am::error(am::errc::not_found,
                        words[0] + " cannot be started: " + std::strerror(failed));
    for (;;) {
        const auto enrolled =
            self_.receive_within(std::chrono::milliseconds(100), {.tag = enrolled_tag});
        if (enrolled) {
            started_.push_back(child);
            return enrolled->from;
        }
        int how = 0;
        if (::waitpid(child, &how, WNOHANG) == child)
            throw am::error(am::errc::disconnected,
                            command.front() + " has ended before it became a task");
    }
}

void task::export_thread(const std::string& name, std::function<void(thread&)> body) {
    {
        const std::lock_guard one(lock_);
        exported_.emplace_back(name, std::move(body));
    }
    am::resource fresh =
        here_.add({{"type", "threadef"}, {"name", name}, {"systhread", text_of(pod_.id())}});
    const std::lock_guard one(lock_);
    registered_.push_back(std::move(fresh));
}

tid task::spawn_thread(const std::string& name) {
    am::attribute_list wanted{{"type", "threadef"}, {"name", name}};
    wanted.ask("systhread");
    std::vector<tid> pods;
    for (const am::found_resource& each : here_.search(std::move(wanted)))
        pods.push_back(tid_of(each.what.text("systhread")));
    if (pods.empty()) throw am::error(am::errc::not_found, "no task has exported a thread " + name);
    const tid pod = pods[turn_++ % pods.size()];
    self_.send(pod, start_tag, name);
    for (;;) {
        const auto started =
            self_.receive_within(std::chrono::milliseconds(500), {.tag = started_tag});
        if (started) return started->from;
        if (!here_.find(pod))
            throw am::error(am::errc::disconnected, "the task that was to start a thread is gone");
    }
}

// Starts requested threads until this task ends.
void task::control_pod() {
    for (;;) {
        const am::resource_message asked = pod_.receive({.tag = start_tag});
        if (asked.from == pod_.id()) return;
        std::function<void(thread&)> body;
        const std::string name(asked.content.text());
        {
            const std::lock_guard one(lock_);
            for (const auto& [each, what] : exported_)
                if (each == name) body = what;
        }
        if (!body) continue;
        threads_.push_back(
            am::spawn(here_.where().stream(), [this, name, body, parent = asked.from] {
                thread me;
                me.self_ = here_.add({{"type", "thread"}, {"name", name}});
                me.parent_ = parent;
                me.self_.send(parent, started_tag, "");
                body(me);
            }));
    }
}

void launch_if_asked(int argc, char** argv) {
    if (argc < 5 || std::string_view(argv[1]) != launch_word) return;
    const std::string ptid = argv[2], host = argv[3];
    int gate[2];
    if (::pipe(gate) != 0) std::_Exit(1);
    const pid_t child = ::fork();
    if (child == -1) std::_Exit(1);
    if (child == 0) {
        // Waits for its temporary resource; exits if that cannot be registered.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        char any = 0;
        ::close(gate[1]);
        if (::read(gate[0], &any, 1) != 1) std::_Exit(1);
        ::close(gate[0]);
        ::setenv(host_variable, host.c_str(), 1);
        ::execvp(argv[4], argv + 4);
        std::_Exit(127);
    }
    ::close(gate[0]);
    int code = 1;
    try {
        am::context here;
        const am::resource temporary = here.add(
            {{"type", "tmp"}, {"pid", std::to_string(child)}, {"host", host}, {"ptid", ptid}});
        int how = 0;
        if (::write(gate[1], "g", 1) == 1)
            while (::waitpid(child, &how, 0) == -1 && errno == EINTR) {
            }
        code = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    } catch (const am::error& why) {
        std::fprintf(stderr, "tpvm: %s\n", why.what());
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    }
    std::_Exit(code);
}

}  // namespace tpvm

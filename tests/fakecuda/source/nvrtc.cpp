// libnvrtc.so.13: compiles with the fake nvcc.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "machine.h"

namespace {

enum Answer { OK = 0, INVALID = 3, COMPILATION = 6 };  // nvrtcResult

struct Program {
  std::string source, log, code;
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

PUBLIC int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return OK;
}

PUBLIC int nvrtcCreateProgram(Program** made, const char* source, const char*, int, const char* const*,
                              const char* const*) {
  *made = new Program{source, "", ""};
  return OK;
}

PUBLIC int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  std::string arch;
  for (int i = 0; i < count; ++i)
    if (strncmp(options[i], "--gpu-architecture=", 19) == 0) arch = options[i] + 19;
  char folder[] = "/tmp/fakecuda-XXXXXX";
  if (mkdtemp(folder) == nullptr) return COMPILATION;
  const std::string base = std::string(folder) + "/kernels";
  std::ofstream(base + ".cu") << program->source;
  const std::string command = "nvcc --cubin -arch=" + arch + " " + base + ".cu -o " + base + ".cubin >" + base +
                              ".log 2>&1";
  const int status = system(command.c_str());
  program->log = content(base + ".log");
  program->code = content(base + ".cubin");
  if (system(("rm -rf " + std::string(folder)).c_str()) != 0) program->log += "the folder stays\n";
  return status ? COMPILATION : OK;
}

PUBLIC int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = program->log.size() + 1;
  return OK;
}

PUBLIC int nvrtcGetProgramLog(Program* program, char* out) {
  memcpy(out, program->log.c_str(), program->log.size() + 1);
  return OK;
}

PUBLIC int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->code.size();
  return OK;
}

PUBLIC int nvrtcGetCUBIN(Program* program, char* out) {
  memcpy(out, program->code.data(), program->code.size());
  return OK;
}

PUBLIC int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return OK;
}

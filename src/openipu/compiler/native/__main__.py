"""`python -m openipu.compiler.native`: compile the native kernels now, not on first use, and say what is there."""

from openipu.compiler.native import library, why_not

if __name__ == "__main__":
    found = library()
    print(f"Native kernels: {found.description}" if found else f"No native kernels: {why_not()}.")

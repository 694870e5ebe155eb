"""Programs that show MaxQ at work; each checks what it claims. README.md lists them."""
